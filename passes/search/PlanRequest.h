// What a plan is asked for. No MLIR in this header.
#pragma once
#include "partitioner/search/Space.h"
#include "partitioner/simulate/Memory.h"
#include "partitioner/strategy/DecisionTable.h"
#include "passes/CompileOptions.h"

#include <memory>
#include <optional>
#include <string>

namespace cleave::passes {

struct SearchCache;

struct PlanRequest : CompileOptions {
  /// What is left to a search; none: `strategy` is complete.
  std::optional<partitioner::SpaceRequest> toSearch;
  /// The device that is to run the plan, whose memory it must fit; none: the devices of `cluster`, and without a
  /// cluster the plan need not fit.
  std::optional<partitioner::DeviceHere> device;
  bool alternatives = false; ///< whether the plan stores plans that differ in one decision; needs a cluster
  /// What searches measure, shared with other requests for plans of this model; null: with none.
  std::shared_ptr<SearchCache> searchCache;
  std::string dumpProblems; ///< folder for the problems that a search solves; empty: they are not written
};

/// What becomes of a decision of a request. A training is searched for all that it leaves open, a run without gradients
/// for its mesh. Where nothing is searched, what nobody asked for has its default; recomputation has another one if the
/// plan would not fit its devices; a schedule "auto" is open.
partitioner::RowState stateOf(const partitioner::DecisionRow &row, const PlanRequest &request);

/// The cluster of a request, with the memory of the device that is to run the plan; nullopt if it has none.
std::optional<partitioner::Cluster> clusterOf(const PlanRequest &request);

} // namespace cleave::passes
