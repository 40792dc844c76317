#include "partitioner/search/Neighbours.h"

#include "partitioner/strategy/DecisionTable.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace cleave::partitioner {

/// The decision in which `a` differs from `b`; the mesh if several follow from that; "" if they differ in several.
static std::string onlyDifference(const Decisions &a, const Decisions &b) {
  std::vector<std::string> differs;
  for (const DecisionRow &row : decisionTable())
    if (row.isFree(b.mesh) && row.value(a) != row.value(b))
      differs.emplace_back(row.word);
  return !differs.empty() && (differs.size() == 1 || differs[0] == "mesh") ? differs[0] : "";
}

/// Whether one factor moves between two axes, or the axes have another order, and nothing else changes that the other
/// mesh allows to keep.
static bool isNear(const Decisions &other, const Decisions &all) {
  int64_t same = 0;
  for (const MeshAxis &axis : all.mesh.axes)
    same += other.mesh.size(axis.name) == axis.size;
  return (same == 1 || same == 3) && std::ranges::all_of(decisionTable(), [&](const DecisionRow &row) {
           return row.word == "mesh" || row.word == "schedule" ||
                  row.value(other) == row.value(row.isFree(other.mesh) ? all : Decisions());
         });
}

std::vector<Neighbour> neighboursOf(Space space, const RankPlaces &places, const PlanGroup &group,
                                    const ScheduleChoice &schedule) {
  const Decisions all = decisionsOf(group, schedule);
  for (const DecisionRow &row : decisionTable())
    if (row.word != "stages")
      row.drop(space.asked.pins);
  space.asked.pins.kind.clear();
  std::vector<Neighbour> found;
  for (PlanGroup other : groupsOf(space, places)) {
    other.split.solved = group.split.solved && !other.split.sequence; // the solver splits activations as well
    const Decisions there = decisionsOf(other, schedule);
    const bool sameMesh = there.mesh == all.mesh;
    if (!sameMesh && !isNear(there, all))
      continue;
    for (const ScheduleChoice &choice : schedulesOf(space, other)) {
      Candidate plan;
      plan.group = other, plan.schedule = choice;
      const std::string decision = onlyDifference(decisionsOf(other, choice), all);
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

std::string Neighbour::value() const { return decisionNamed(decision)->value(decisionsOf(plan.group, plan.schedule)); }

} // namespace cleave::partitioner
