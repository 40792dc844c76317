// Chooses the executor for a device, and implements what all executors share.
#include "runtime/executor/Executor.h"

#include "runtime/base/Error.h"
#include "runtime/executor/Backends.h"
#include "runtime/executor/Resolved.h"
#include "runtime/plan/Backend.h"
#include "runtime/plan/Text.h"
#include "runtime/plan/plan_generated.h"

#include <fmt/format.h>

#include <set>

namespace cleave {

static const plan::Rank &rankOf(const PlanFile &file, unsigned rank, RankEndpoint &world) {
  const plan::Plan &plan = file.plan();
  uint32_t ranks = plan.ranks() ? plan.ranks()->size() : 0;
  if (world.size() != ranks)
    throw userError(
        fmt::format("plan '{}' is for {} rank{}, found {}", file.name(), ranks, ranks == 1 ? "" : "s", world.size()));
  if (rank >= ranks)
    throw userError(fmt::format("plan '{}' has ranks 0 to {}, asked for {}", file.name(), ranks - 1, rank));
  return *plan.ranks()->Get(rank);
}

/// A plan's code and library steps are for one backend; a plan without a backend is for CPUs.
static void requireBackend(const PlanFile &file, const std::string &device) {
  const Target::Kind backend = backendOf(file.plan());
  if ((backend == Target::Kind::Cuda) != (device == "cuda"))
    throw userError(
        fmt::format("plan '{}' is for the {} backend, asked to run on {}", file.name(), text(backend), device));
}

void requireDevice(const std::string &name) {
  if (name == "cuda")
    requireCuda();
}

Executor::Executor(std::shared_ptr<const PlanFile> planFile, unsigned rankIndex, RankEndpoint &world,
                   const ExecutorOptions &options)
    : file(std::move(planFile)), plan(file->plan()), rankIndex(rankIndex), rank(rankOf(*file, rankIndex, world)),
      program(*plan.programs()->Get(rank.program())), world(world), options(options) {
  world.setTimeout(options.timeoutSeconds);
}

std::vector<std::vector<uint32_t>> Executor::groups() const {
  std::vector<std::vector<uint32_t>> lists;
  if (!rank.groups())
    return lists;
  for (uint32_t group : std::set<uint32_t>(rank.groups()->begin(), rank.groups()->end())) {
    const auto *ranks = plan.groups()->Get(group)->ranks();
    lists.emplace_back(ranks->begin(), ranks->end());
  }
  return lists;
}

std::unique_ptr<Executor> makeExecutor(std::shared_ptr<const PlanFile> plan, unsigned rank, RankEndpoint &world,
                                       const ExecutorOptions &options) {
  if (options.device == "cuda" && options.findNonFinite)
    throw userError(
        "--find-nan: not supported by the cuda backend, because it examines every step on the host; train with "
        "--backend cpu");
  requireBackend(*plan, options.device); // reported before a missing backend
  return options.device == "cuda" ? makeCudaExecutor(std::move(plan), rank, world, options)
                                  : makeHostExecutor(std::move(plan), rank, world, options);
}

size_t Executor::inputBytes() const { return static_cast<size_t>(program.input_bytes()); }

std::vector<StepTime> Executor::profile() const {
  std::vector<StepTime> all;
  for (const auto &segment : times)
    all.insert(all.end(), segment.begin(), segment.end());
  return all;
}

RankTrace Executor::trace() const {
  RankTrace all{tracedTraining, static_cast<uint32_t>(traced.size()), traceOrigin, {}};
  for (uint32_t i = 0; i < traced.size(); ++i)
    for (TraceEvent event : traced[i]) {
      event.iteration = i;
      all.events.push_back(event);
    }
  return all;
}

void Executor::beginTrace(bool training, std::chrono::steady_clock::time_point origin) {
  tracing = training || !tracedTraining; // an evaluation after training must not replace its trace
  if (!tracing)
    return;
  if (training && !tracedTraining)
    traced.clear();
  tracedTraining = training;
  traceOrigin = origin;
  if (traced.size() == traceIterations)
    traced.pop_front();
  traced.emplace_back();
}

void Executor::noteStep(uint32_t segment, uint32_t step, int32_t microbatch, double begin, double seconds) {
  const plan::Segment &info = *program.segments()->Get(segment);
  const std::string name = text(info.name());
  times.resize(program.segments()->size());
  std::vector<StepTime> &list = times[segment];
  for (auto i = static_cast<uint32_t>(list.size()); i < info.steps()->size(); ++i) {
    const plan::Step &one = *info.steps()->Get(i);
    list.push_back({name, EnumNameStepOp(one.op_type()), pathOf(plan, one), 0, 0, one.flops()});
  }
  list[step].seconds += seconds;
  ++list[step].calls;
  if (tracing)
    traced.back().push_back({segment, step, microbatch, 0, begin, seconds});
}

} // namespace cleave
