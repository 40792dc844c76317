#include "partitioner/search/Neighbours.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <set>
#include <utility>

namespace cleave::partitioner {

/// The decision in which a plan differs from that of `group` and `schedule`; its mesh if several follow from that; ""
/// if it differs in several.
static std::string onlyDifference(const Candidate &plan, const PlanGroup &group, const ScheduleChoice &schedule) {
  const SplitChoice &a = plan.group.split, &b = group.split;
  if (a.data != b.data || a.tensor != b.tensor || plan.group.order != group.order)
    return "mesh";
  std::vector<std::string> differs;
  if (plan.group.microbatches != group.microbatches)
    differs.emplace_back("microbatches");
  if (a.recompute != b.recompute)
    differs.emplace_back("recompute");
  if (a.zero != b.zero)
    differs.emplace_back("zero");
  if (a.sequence != b.sequence)
    differs.emplace_back("sequence");
  if (group.pipeline > 1 && (plan.schedule.name != schedule.name || plan.schedule.chunks != schedule.chunks))
    differs.emplace_back("schedule");
  return differs.size() == 1 ? differs[0] : "";
}

/// Whether one factor moves between two axes, or the axes have another order, and nothing else changes that the other
/// mesh allows to keep.
static bool isNear(const PlanGroup &other, const PlanGroup &group) {
  const SplitChoice &a = other.split, &b = group.split;
  const int same = (a.data == b.data) + (a.tensor == b.tensor) + (other.pipeline == group.pipeline);
  return (same == 1 || same == 3) && other.microbatches == group.microbatches && a.recompute == b.recompute &&
         a.zero == (a.data > 1 ? b.zero : 0) && a.sequence == (a.tensor > 1 && b.sequence);
}

std::vector<Neighbour> neighboursOf(SpaceRequest space, const PlanGroup &group, const ScheduleChoice &schedule) {
  space.pins.mesh.reset(), space.pins.schedule.reset(), space.pins.chunks.reset(), space.pins.order.clear();
  space.pins.microbatches.reset(), space.pins.zero.reset(), space.pins.sequence.reset(), space.pins.kind.clear();
  space.pins.recompute.clear();
  std::vector<Neighbour> found;
  for (const PlanGroup &other : groupsOf(space)) {
    const bool sameMesh =
        other.split.data == group.split.data && other.split.tensor == group.split.tensor && other.order == group.order;
    if (!sameMesh && !isNear(other, group))
      continue;
    for (const ScheduleChoice &choice : schedulesOf(space, other)) {
      Candidate plan;
      plan.group = other, plan.schedule = choice;
      const std::string decision = onlyDifference(plan, group, schedule);
      const bool follows = sameMesh || (choice.name == schedule.name && choice.chunks == schedule.chunks) ||
                           (choice.name == "1f1b" && (other.pipeline == 1 || group.pipeline == 1));
      if (!decision.empty() && follows)
        found.push_back({decision, std::move(plan)});
    }
  }
  return found;
}

std::vector<Neighbour> mostInteresting(std::vector<Neighbour> neighbours) {
  constexpr int64_t mostMeshes = 3;
  std::ranges::stable_sort(neighbours, {}, [](const Neighbour &one) { return one.plan.estimate.seconds; });
  std::map<std::string, int64_t> taken;
  std::set<std::pair<int64_t, int64_t>> meshes;
  std::vector<Neighbour> chosen;
  for (Neighbour &other : neighbours) {
    const SplitChoice &split = other.plan.group.split;
    const bool mesh = other.decision == "mesh";
    if (!other.plan.estimate.fits()) {
      if (chosen.empty()) // faster than all that fit
        chosen.push_back(std::move(other));
    } else if (taken[other.decision] < (mesh ? mostMeshes : 1) &&
               (!mesh || meshes.emplace(split.data, split.tensor).second)) {
      ++taken[other.decision];
      chosen.push_back(std::move(other));
    }
  }
  return chosen;
}

std::string Neighbour::value() const {
  const PlanGroup &group = plan.group;
  if (decision == "mesh")
    return meshText(group.mesh());
  if (decision == "microbatches")
    return std::to_string(group.microbatches);
  if (decision == "recompute")
    return text(group.split.recompute);
  if (decision == "zero")
    return std::to_string(group.split.zero);
  if (decision == "sequence")
    return group.split.sequence ? "tp" : "none";
  return plan.schedule.chunks > 1 ? fmt::format("{}, {} stages a rank", plan.schedule.name, plan.schedule.chunks)
                                  : plan.schedule.name;
}

} // namespace cleave::partitioner
