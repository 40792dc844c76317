// Searches, compiles with more and more recomputation or fewer copies, and adds alternatives.
#include "passes/search/Planner.h"

#include "partitioner/schedule/Named.h"
#include "partitioner/search/FindSchedule.h"
#include "partitioner/simulate/Memory.h"
#include "partitioner/simulate/Simulate.h"
#include "passes/pipeline/Pipeline.h"
#include "runtime/base/Error.h"
#include "runtime/plan/Text.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

namespace cleave::passes {
namespace {

using partitioner::Decisions;
using partitioner::Recomputation;

std::shared_ptr<const PlanFile> sealed(std::vector<uint8_t> bytes) {
  return PlanFile::fromBytes(std::move(bytes), "the compiled plan");
}

/// The devices of a plan: what it is made for, and whose memory it must fit.
struct Devices {
  std::optional<partitioner::DeviceHere> device;
  std::optional<partitioner::Cluster> cluster;

  explicit Devices(const PlanRequest &request) : device(request.device), cluster(clusterOf(request)) {}

  /// "cluster two-nodes", "this machine".
  std::string text() const { return device ? device->name : "cluster " + cluster->name; }

  std::optional<partitioner::MemoryLack> lack(const PlanFile &file) const {
    if (device)
      return partitioner::memoryLack(file.plan(), *device);
    return cluster ? partitioner::memoryLack(file.plan(), *cluster) : std::nullopt;
  }
};

/// Compiles a model's plans with other schedules, without code.
class CompiledSchedules : public partitioner::ScheduleTrials {
public:
  CompiledSchedules(const GraphModule &model, const CompileOptions &options, const partitioner::Cluster &cluster)
      : model(model), options(options), cluster(cluster) {
    this->options.code = false;
    this->options.printAfter.clear();
  }

  partitioner::TriedStages stages(const Decisions &strategy) override {
    const auto file = compiled(strategy);
    return {partitioner::measureStages(file->plan(), cluster),
            partitioner::memoryProblem(file->plan(), cluster).value_or("")};
  }
  partitioner::TriedPlan tried(const Decisions &strategy) override {
    partitioner::TriedPlan plan{.strategy = strategy, .file = compiled(strategy)};
    partitioner::judge(plan, cluster);
    return plan;
  }

private:
  std::shared_ptr<const PlanFile> compiled(const Decisions &strategy) {
    options.strategy = strategy;
    return sealed(compile(model.clone(), options));
  }

  const GraphModule &model;
  CompileOptions options;
  const partitioner::Cluster &cluster;
};

/// A plan, or the error of a search that found no schedule for the memory.
struct Attempt {
  Decisions strategy; ///< with the schedule that was found
  std::shared_ptr<const PlanFile> file;
  std::optional<Error> refused;
  std::string problem, advice; ///< of a plan that does not fit; empty: it does
};

Attempt attempt(GraphModule model, CompileOptions options, const Devices &devices) {
  Attempt made;
  if (devices.cluster && options.purpose == Purpose::Training && options.strategy.scheduleIsOpen())
    try {
      CompiledSchedules schedules(model, options, *devices.cluster);
      options.strategy = partitioner::findSchedule(options.strategy, schedules);
    } catch (const Error &error) {
      if (error.status != Status::Environment)
        throw;
      made.refused = error;
      made.problem = error.what();
      return made;
    }
  made.file = sealed(compile(std::move(model), options));
  made.strategy = std::move(options.strategy);
  if (const auto lack = devices.lack(*made.file))
    made.problem = lack->what, made.advice = lack->advice;
  return made;
}

/// Compiles the strategy, where it leaves recomputation open with the least that fits.
MadePlan fitted(GraphModule model, const PlanRequest &request) {
  const Devices devices(request);
  Attempt asked = attempt(model.clone(), request, devices);
  if (asked.problem.empty())
    return {std::move(asked.file), {}};
  if (stateOf(*partitioner::decisionNamed("recompute"), request) == partitioner::RowState::DefaultUnlessMemory)
    for (const Recomputation kind : {Recomputation::Selective, Recomputation::Full}) {
      CompileOptions more = request;
      more.strategy.recompute = {{partitioner::RecomputeRule::everyLayer, kind, "memory"}};
      more.code = false;
      Attempt made = attempt(model.clone(), more, devices);
      if (!made.problem.empty())
        continue;
      more.code = request.code, more.strategy = std::move(made.strategy);
      if (more.code)
        made.file = sealed(compile(std::move(model), more));
      return {std::move(made.file), fmt::format("recompute: {}, the least that fits {}; without recomputation {}",
                                                partitioner::text(kind), devices.text(), asked.problem)};
    }
  if (asked.refused)
    throw *asked.refused;
  throw environmentError(fmt::format("the plan does not fit {}: {}; {}", devices.text(), asked.problem, asked.advice));
}

/// Splits a run without gradients, whose copies of the model send each other nothing: as many copies as the memory, the
/// rows and the model allow.
MadePlan spread(const Trace &trace, PlanRequest request) {
  const partitioner::SpaceRequest space = *std::exchange(request.toSearch, std::nullopt);
  const int64_t devices = space.devices, rows = request.batch / request.strategy.microbatches;
  std::optional<Error> refused;
  for (int64_t copy = 1; copy <= devices; ++copy) // devices of a copy
    for (int64_t pipeline = 1; devices % copy == 0 && pipeline <= copy; ++pipeline) {
      const int64_t data = devices / copy;
      if (copy % pipeline != 0 || data > rows)
        continue;
      request.strategy.mesh = partitioner::parseMesh(fmt::format("dp={},tp={},pp={}", data, copy / pipeline, pipeline));
      try {
        return fitted(trace(rows, request.evalBatch), request);
      } catch (const Error &error) {
        if (error.status == Status::Internal)
          throw;
        if (!refused || refused->status == Status::User)
          refused = error;
      }
    }
  throw *refused;
}

/// Takes an order of its own for the schedule of a strategy that a search found, if that is faster.
void improveSchedule(FoundStrategy &found, const Trace &trace, const PlanRequest &request) {
  const auto record = std::make_shared<plan::SearchT>(*found.record);
  record->lower = std::min(record->lower, record->least); // the bound of the search is that of published schedules
  found.record = record;
  if (found.strategy.mesh.size(AxisRole::Pipeline) == 1)
    return;
  const Devices devices(request);
  CompileOptions open = request;
  open.code = false, open.strategy = found.strategy;
  open.strategy.schedule = partitioner::searchedSchedule;
  open.strategy.chunks = request.toSearch->pins.chunks.value_or(0);
  if (open.strategy.originOf("stages") == "search")
    open.strategy.stages.clear();
  const int64_t microbatches = found.strategy.microbatches;
  Attempt made;
  try {
    made = attempt(trace(request.batch / microbatches, request.evalBatch / microbatches), open, devices);
  } catch (const Error &error) {
    if (error.status != Status::User) // the model cannot be cut so
      throw;
    return;
  }
  ++record->compiled;
  if (!made.problem.empty())
    return;
  const double step = partitioner::simulate(made.file->plan(), *devices.cluster).stepSeconds;
  if (step >= record->step)
    return;
  record->step = step, record->lower = std::min(record->lower, step);
  found.strategy = std::move(made.strategy), found.plan = std::move(made.file);
}

} // namespace

MadePlan makePlan(const Trace &trace, PlanRequest request, const Stops &stops) {
  if (request.purpose != Purpose::Training && request.toSearch)
    return spread(trace, std::move(request));
  std::shared_ptr<const PlanFile> found;
  if (request.toSearch) {
    FoundStrategy best = searchStrategy(trace, request, stops);
    if (request.toSearch->ownOrders)
      improveSchedule(best, trace, request);
    request.strategy = std::move(best.strategy), request.search = std::move(best.record);
    request.toSearch.reset();
    found = std::move(best.plan);
  }
  MadePlan made;
  if (found && !request.code && request.printAfter.empty()) {
    made.file = sealed(withRecord(found->plan(), request.clusterToml(), request.search.get(), {}));
  } else {
    const int64_t microbatches = request.strategy.microbatches;
    made = fitted(trace(request.batch / microbatches, request.evalBatch / microbatches), request);
  }
  if (request.alternatives)
    made.file = withAlternatives(made.file->plan(), trace, request);
  return made;
}

std::shared_ptr<const PlanFile> withAlternatives(const plan::Plan &made, const Trace &trace,
                                                 const PlanRequest &request) {
  const auto chosen = Decisions::parse(text(made.strategy()), "the plan");
  return sealed(withRecord(made, request.clusterToml(), nullptr, alternativesTo(trace, request, chosen)));
}

} // namespace cleave::passes
