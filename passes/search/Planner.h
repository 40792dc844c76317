// One way from a request to a plan: searches what is open, compiles, and fits the plan to the memory. No MLIR in this
// header.
#pragma once
#include "passes/search/StrategySearch.h"

namespace cleave::passes {

struct MadePlan {
  std::shared_ptr<const PlanFile> file;
  std::string change; ///< a line about what was chosen so that the plan fits the memory; empty: nothing
};

/// The plan that is asked for. `stops` ends the search early. A schedule "auto" is searched on the cluster for the
/// strategy that is asked for or found (partitioner/search/FindSchedule.h). A training that says nothing of
/// recomputation and does not fit the memory of its devices takes the least recomputation of every layer that does:
/// selective, or full. An evaluation or a prediction whose mesh is open takes as many copies of the model (dp) as fit,
/// and gives each copy the other devices: over tp or, where the model cannot be split so, pp. Throws environmentError
/// if no plan fits, and as searchStrategy() and compile() do.
MadePlan makePlan(const Trace &trace, PlanRequest request, const Stops &stops);

/// The plan `made`, which was compiled for the same model and request, with its alternatives.
std::shared_ptr<const PlanFile> withAlternatives(const plan::Plan &made, const Trace &trace,
                                                 const PlanRequest &request);

} // namespace cleave::passes
