// Compiles trial plans, searches, and simulates the finalists.
#include "passes/search/ScheduleSearch.h"

#include "partitioner/pipeline/Search.h"
#include "partitioner/schedule/Named.h"
#include "partitioner/simulate/MeasureStages.h"
#include "partitioner/simulate/Memory.h"
#include "partitioner/simulate/Simulate.h"
#include "passes/pipeline/Pipeline.h"
#include "runtime/base/Error.h"
#include "runtime/plan/PlanFile.h"

#include <algorithm>
#include <fmt/format.h>

namespace cleave::passes {
namespace {

using partitioner::Cluster;
using partitioner::Decisions;
using partitioner::Schedule;

/// Finalists are schedules whose estimated time is at most this factor above the shortest, and at most this many. The
/// estimate comes from the costs of stages, which ignore what a joined backward pass overlaps.
constexpr double nearlyShortest = 1.1;
constexpr size_t mostFinalists = 6;

struct ScheduleCandidate {
  Decisions strategy;
  double milliseconds; ///< estimated from the costs of its stages
};

class ScheduleSearch {
public:
  ScheduleSearch(const GraphModule &model, const CompileOptions &options, const Cluster &cluster)
      : model(model), options(options), cluster(cluster) {}

  Decisions run() {
    for (const Schedule &shape : shapes())
      addCandidates(shape);
    if (candidates.empty() && refused)
      throw *refused;
    std::ranges::stable_sort(candidates, {}, &ScheduleCandidate::milliseconds);
    addOpenSchedules();
    return fastest();
  }

private:
  std::vector<Schedule> shapes() const {
    const Decisions &given = options.strategy;
    const int64_t ranks = given.mesh.size(AxisRole::Pipeline);
    if (given.chunks == 0 && ranks > 1)
      return partitioner::openShapes(ranks, given.microbatches);
    return {{partitioner::searchedSchedule, ranks, std::max<int64_t>(given.chunks, 1), given.microbatches,
             given.placement}};
  }

  Decisions strategyWith(const Schedule &schedule) const {
    Decisions strategy = options.strategy;
    strategy.setSchedule(schedule, "search");
    return strategy;
  }

  std::shared_ptr<const PlanFile> trial(const Decisions &strategy) const {
    CompileOptions without = options;
    without.strategy = strategy;
    without.code = false;
    without.printAfter.clear();
    return PlanFile::fromBytes(compile(model.clone(), without), "a trial plan");
  }

  void addCandidates(const Schedule &shape) {
    std::shared_ptr<const PlanFile> file;
    try {
      file = trial(strategyWith(partitioner::oneAtATime(shape)));
    } catch (const Error &error) {
      if (error.status != Status::User)
        throw;
      if (!refused)
        refused = error; // fewer layers than stages, for example
      return;
    }
    const partitioner::MeasuredStages measured = partitioner::measureStages(file->plan(), cluster);
    std::optional<Schedule> found = partitioner::searchSchedule(shape, measured.stages, measured.limits);
    if (!found) {
      if (problem.empty())
        problem = partitioner::memoryProblem(file->plan(), cluster).value_or("");
      return;
    }
    add(*found, measured);
    for (const Schedule &named : partitioner::namedSchedulesOf(shape))
      if (named.name != found->name)
        add(named, measured);
  }

  /// Adds the named schedules that take any number of stages per rank from two as finalists. The number is chosen from
  /// the layers (partitioner/stages/Stages.cpp).
  void addOpenSchedules() {
    const Decisions &given = options.strategy;
    const int64_t ranks = given.mesh.size(AxisRole::Pipeline);
    if (candidates.empty() || given.chunks > 0 || ranks == 1 || refused) // too few layers for two stages a rank
      return;
    for (const std::string &name : partitioner::namedSchedules()) {
      if (partitioner::chunksOf(name) > 0 || partitioner::checkNamedSizes(name, ranks, 2, given.microbatches))
        continue;
      ScheduleCandidate candidate{given, candidates.front().milliseconds};
      candidate.strategy.schedule = name;
      candidate.strategy.scheduleOrigin = "search";
      candidates.insert(candidates.begin() + 1, std::move(candidate));
    }
  }

  void add(const Schedule &schedule, const partitioner::MeasuredStages &measured) {
    if (!partitioner::rankOverLimit(partitioner::peakBytes(schedule, measured.stages), measured.limits))
      candidates.push_back({strategyWith(schedule), partitioner::simulate(schedule, measured.stages).step});
  }

  Decisions fastest() {
    std::optional<Decisions> best;
    double seconds = 0;
    size_t tried = 0;
    for (const ScheduleCandidate &candidate : candidates) {
      const bool near = candidate.milliseconds <= nearlyShortest * candidates.front().milliseconds;
      if (best && (!near || tried == mostFinalists))
        break;
      const auto file = trial(candidate.strategy);
      ++tried;
      if (const auto lacks = partitioner::memoryProblem(file->plan(), cluster)) {
        problem = *lacks;
        continue;
      }
      const double step = partitioner::simulate(file->plan(), cluster).stepSeconds;
      if (!best || step < seconds)
        best = candidate.strategy, seconds = step;
    }
    if (!best)
      throw environmentError(fmt::format("schedule \"auto\": no schedule fits the cluster: {}", problem));
    return *best;
  }

  const GraphModule &model;
  const CompileOptions &options;
  const Cluster &cluster;
  std::vector<ScheduleCandidate> candidates;
  std::optional<Error> refused; ///< error of the first shape that cannot be compiled
  std::string problem;          ///< why a plan does not fit into memory
};

} // namespace

Decisions searchSchedule(const GraphModule &model, const CompileOptions &options, const Cluster &cluster) {
  return ScheduleSearch(model, options, cluster).run();
}

} // namespace cleave::passes
