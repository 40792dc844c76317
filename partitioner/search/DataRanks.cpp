// Numbers the ranks and groups of a larger mesh.
#include "partitioner/search/DataRanks.h"

#include "runtime/base/AxisRole.h"
#include "runtime/plan/check/Defects.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <map>
#include <ranges>
#include <utility>

namespace cleave::partitioner {

using check::length;

namespace {

using Coords =
    std::vector<uint32_t>; // in the order of the mesh's axes; ranks are numbered by them, the last axis fastest

uint32_t numberOf(const Coords &coords, const Coords &sizes) {
  uint32_t number = 0;
  for (size_t a = 0; a < sizes.size(); ++a)
    number = number * sizes[a] + coords[a];
  return number;
}

Coords coordsOf(uint32_t number, const Coords &sizes) {
  Coords coords(sizes.size());
  for (size_t a = sizes.size(); a-- > 0; number /= sizes[a])
    coords[a] = number % sizes[a];
  return coords;
}

bool isAlong(const plan::Group &group, const plan::MeshAxis &axis) {
  const std::string_view name = axis.name()->string_view();
  return std::ranges::any_of(std::views::split(group.axis()->string_view(), '+'),
                             [&](auto part) { return std::ranges::equal(part, name); });
}

} // namespace

std::shared_ptr<const PlanFile> withDataRanks(const plan::Plan &plan, uint32_t ranks) {
  Coords before, sizes;
  size_t data = 0;
  for (uint32_t a = 0; a < length(plan.mesh()); ++a) {
    const plan::MeshAxis &axis = *plan.mesh()->Get(a);
    before.push_back(axis.size()), sizes.push_back(axis.size());
    if (axis.name()->string_view() == axisName(AxisRole::Data))
      data = a, sizes.back() = ranks;
  }
  plan::PlanT wide;
  std::map<std::pair<std::string_view, Coords>, uint32_t> groups; // by axes, and coordinates along the others
  for (uint32_t r = 0; r < length(plan.ranks()) / before[data] * ranks; ++r) {
    const Coords coords = coordsOf(r, sizes);
    Coords like = coords;
    like[data] = coords[data] + 1 < ranks ? 0 : before[data] - 1;
    std::unique_ptr<plan::RankT> &rank = wide.ranks.emplace_back(plan.ranks()->Get(numberOf(like, before))->UnPack());
    rank->coords = coords;
    for (uint32_t &group : rank->groups) {
      const plan::Group &given = *plan.groups()->Get(group);
      Coords others = coords;
      for (uint32_t a = 0; a < sizes.size(); ++a)
        if (isAlong(given, *plan.mesh()->Get(a)))
          others[a] = 0;
      const auto [found, fresh] = groups.try_emplace({given.axis()->string_view(), std::move(others)},
                                                     static_cast<uint32_t>(wide.groups.size()));
      if (fresh)
        wide.groups.push_back(std::make_unique<plan::GroupT>());
      group = found->second;
      if (std::vector<uint32_t> &members = wide.groups[group]->ranks; members.empty() || members.back() != r)
        members.push_back(r);
    }
  }
  return PlanFile::fromBytes(packPlan(wide), "the ranks of a trial plan");
}

} // namespace cleave::partitioner
