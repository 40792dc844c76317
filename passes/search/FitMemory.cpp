// Compiles with more and more recomputation.
#include "passes/search/FitMemory.h"

#include "partitioner/schedule/Named.h"
#include "partitioner/simulate/Memory.h"
#include "passes/search/ScheduleSearch.h"
#include "runtime/base/Error.h"
#include "runtime/plan/PlanFile.h"

#include <fmt/format.h>
#include <optional>

namespace cleave::passes {
namespace {

using partitioner::Recomputation;

/// A plan, or the error of a search that found no schedule for the memory.
struct Attempt {
  std::vector<uint8_t> bytes;
  std::optional<Error> refused;
  std::string problem, advice;
};

Attempt attempt(const GraphModule &model, const CompileOptions &options, const partitioner::Cluster &cluster) {
  Attempt made;
  try {
    made.bytes = searchAndCompile(model.clone(), options);
  } catch (const Error &error) {
    const bool searched = options.strategy.schedule == partitioner::searchedSchedule && options.strategy.order.empty();
    if (!searched || error.status != Status::Environment)
      throw;
    made.refused = error;
    made.problem = error.what();
    return made;
  }
  const auto file = PlanFile::fromBytes(made.bytes, "the compiled plan");
  if (const auto lack = partitioner::memoryLack(file->plan(), cluster))
    made.problem = lack->what, made.advice = lack->advice;
  return made;
}

} // namespace

FittedPlan compileToFit(GraphModule model, const CompileOptions &options) {
  if (options.cluster.empty())
    return {searchAndCompile(std::move(model), options), {}, {}};
  const auto cluster = partitioner::Cluster::parse(options.cluster, "the cluster");
  Attempt asked = attempt(model, options, cluster);
  if (asked.problem.empty())
    return {std::move(asked.bytes), {}, {}};
  for (const Recomputation kind : {Recomputation::Selective, Recomputation::Full}) {
    if (!options.strategy.recompute.empty())
      break; // it was asked for
    CompileOptions more = options;
    more.strategy.recompute = {{partitioner::RecomputeRule::everyLayer, kind, "memory"}};
    more.code = false;
    Attempt made = attempt(model, more, cluster);
    if (!made.problem.empty())
      continue;
    more.code = options.code;
    if (more.code)
      made.bytes = searchAndCompile(std::move(model), more);
    return {std::move(made.bytes),
            {},
            fmt::format("recompute: {}, the least that fits cluster {}; without recomputation {}",
                        partitioner::text(kind), cluster.name, asked.problem)};
  }
  if (asked.refused)
    throw *asked.refused;
  return {std::move(asked.bytes), fmt::format("{}; {}", asked.problem, asked.advice), {}};
}

} // namespace cleave::passes
