#include "partitioner/search/FindSchedule.h"

#include "partitioner/pipeline/Search.h"
#include "partitioner/schedule/Named.h"
#include "runtime/base/Error.h"

#include <algorithm>
#include <fmt/format.h>
#include <optional>

namespace cleave::partitioner {
namespace {

/// Schedules are tried whose estimated time is at most this factor above the shortest, and at most this many. The
/// estimate comes from the costs of stages, which ignore what a joined backward pass overlaps.
constexpr double nearlyShortest = 1.1;
constexpr size_t schedulesAtMost = 6;

struct ScheduleCandidate {
  Decisions strategy;
  double milliseconds; ///< estimated from the costs of its stages
};

struct ScheduleCandidates {
  std::vector<ScheduleCandidate> all; ///< the fastest first
  std::optional<Error> refused;       ///< of the first shape into which the model cannot be cut
  std::string problem;                ///< why a shape does not fit into memory
};

std::vector<Schedule> shapesOf(const Decisions &open) {
  const int64_t ranks = open.mesh.size(AxisRole::Pipeline);
  if (open.chunks == 0 && ranks > 1)
    return openShapes(ranks, open.microbatches);
  return {{searchedSchedule, ranks, std::max<int64_t>(open.chunks, 1), open.microbatches, open.placement}};
}

Decisions with(Decisions strategy, const Schedule &schedule) {
  strategy.setSchedule(schedule, "search");
  return strategy;
}

/// The shortest schedule of a shape, and all published ones that fit.
void addShape(const Decisions &open, const Schedule &shape, ScheduleTrials &trials, ScheduleCandidates &found) {
  TriedStages tried;
  try {
    tried = trials.stages(with(open, oneAtATime(shape)));
  } catch (const Error &error) {
    if (error.status != Status::User)
      throw;
    if (!found.refused)
      found.refused = error; // fewer layers than stages, for example
    return;
  }
  const MeasuredStages &measured = tried.measured;
  const auto add = [&](const Schedule &schedule) {
    if (!rankOverLimit(peakBytes(schedule, measured.stages), measured.limits))
      found.all.push_back({with(open, schedule), simulate(schedule, measured.stages).step});
  };
  const std::optional<Schedule> shortest = searchSchedule(shape, measured.stages, measured.limits);
  if (!shortest) {
    if (found.problem.empty())
      found.problem = tried.problem;
    return;
  }
  add(*shortest);
  for (const Schedule &named : namedSchedulesOf(shape))
    if (named.name != shortest->name)
      add(named);
}

/// Adds, behind the first candidate, the named schedules that take any number of stages per rank from two. The number
/// is chosen from the layers (partitioner/stages/Stages.cpp).
void addOpenSchedules(const Decisions &open, ScheduleCandidates &found) {
  const int64_t ranks = open.mesh.size(AxisRole::Pipeline);
  if (found.all.empty() || open.chunks > 0 || ranks == 1 || found.refused) // too few layers for two stages a rank
    return;
  for (const std::string &name : namedSchedules()) {
    if (chunksOf(name) > 0 || checkNamedSizes(name, ranks, 2, open.microbatches))
      continue;
    ScheduleCandidate candidate{open, found.all.front().milliseconds};
    candidate.strategy.schedule = name;
    candidate.strategy.scheduleOrigin = "search";
    found.all.insert(found.all.begin() + 1, std::move(candidate));
  }
}

ScheduleCandidates candidatesOf(const Decisions &open, ScheduleTrials &trials) {
  ScheduleCandidates found;
  for (const Schedule &shape : shapesOf(open))
    addShape(open, shape, trials, found);
  if (found.all.empty() && found.refused)
    throw *found.refused;
  std::ranges::stable_sort(found.all, {}, &ScheduleCandidate::milliseconds);
  addOpenSchedules(open, found);
  return found;
}

} // namespace

Decisions findSchedule(const Decisions &open, ScheduleTrials &trials) {
  ScheduleCandidates candidates = candidatesOf(open, trials);
  std::optional<TriedPlan> best;
  size_t tried = 0;
  for (const ScheduleCandidate &candidate : candidates.all) {
    const bool near = candidate.milliseconds <= nearlyShortest * candidates.all.front().milliseconds;
    if (best && (!near || tried == schedulesAtMost))
      break;
    TriedPlan plan = trials.tried(candidate.strategy);
    ++tried;
    if (plan.step == 0)
      candidates.problem = plan.problem;
    else if (!best || plan.step < best->step)
      best = std::move(plan);
  }
  if (!best)
    throw environmentError(fmt::format("schedule \"auto\": no schedule fits the cluster: {}", candidates.problem));
  return best->strategy;
}

} // namespace cleave::partitioner
