// Numbers the ranks and groups of a larger mesh.
#include "partitioner/search/DataRanks.h"

#include "partitioner/search/Space.h"
#include "runtime/plan/Slices.h"
#include "runtime/plan/check/Defects.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <map>
#include <ranges>
#include <utility>

namespace cleave::partitioner {

using check::length;

namespace {

using Coords = std::vector<int64_t>; // in the order of the mesh's axes

bool isAlong(const plan::Group &group, const plan::MeshAxis &axis) {
  const std::string_view name = axis.name()->string_view();
  return std::ranges::any_of(std::views::split(group.axis()->string_view(), '+'),
                             [&](auto part) { return std::ranges::equal(part, name); });
}

} // namespace

std::shared_ptr<const PlanFile> withDataRanks(const plan::Plan &plan, uint32_t ranks) {
  const Mesh before = meshOf(plan);
  Mesh mesh = before; // all trial plans have their ranks of a role along its first axis
  size_t data = 0;
  for (size_t a = 0; a < mesh.axes.size(); ++a)
    if (mesh.axes[a].name == axisName(AxisRole::Data))
      data = a, mesh.axes[a].size = ranks;
  plan::PlanT wide;
  std::map<std::pair<std::string_view, Coords>, uint32_t> groups; // by axes, and coordinates along the others
  for (uint32_t r = 0; r < mesh.ranks(); ++r) {
    const Coords coords = mesh.coords(r);
    Coords like = coords;
    like[data] = coords[data] + 1 < ranks ? 0 : before.axes[data].size - 1;
    std::unique_ptr<plan::RankT> &rank =
        wide.ranks.emplace_back(plan.ranks()->Get(static_cast<uint32_t>(before.rank(like)))->UnPack());
    rank->coords.assign(coords.begin(), coords.end());
    for (uint32_t &group : rank->groups) {
      const plan::Group &given = *plan.groups()->Get(group);
      Coords others = coords;
      for (uint32_t a = 0; a < others.size(); ++a)
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
