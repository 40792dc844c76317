// Finds the strategy of a plan: the mesh and everything else that a request leaves open. No MLIR in this header.
#pragma once
#include "ir/GraphModule.h"
#include "partitioner/search/Search.h"
#include "passes/export/Record.h"
#include "passes/search/PlanRequest.h"
#include "runtime/plan/PlanFile.h"

#include <functional>
#include <memory>
#include <optional>

namespace cleave::passes {

/// Traces the model with so many rows in a microbatch of training, and of evaluation.
using Trace = std::function<GraphModule(int64_t rows, int64_t evalRows)>;

struct FoundStrategy {
  partitioner::Decisions strategy;
  std::shared_ptr<const plan::SearchT> record; ///< for the plan
  std::shared_ptr<const PlanFile> plan;        ///< compiled with this strategy, without code and record
};

/// The strategy that is predicted to be the fastest on `request.cluster` among those that `request.toSearch` leaves
/// open and that fit the devices' memory. The layers' costs are measured on a model that has every kind of layer; at
/// most four plans are compiled and simulated. `stops`: asked often; once it is true, the best strategy so far is
/// taken. Throws environmentError, with the nearest miss, if none fits, and if it stops before one is found.
FoundStrategy searchStrategy(const Trace &trace, const PlanRequest &request, Stops stops = {});

/// Plans that differ from one with the strategy `chosen` in one decision and what follows from it, compiled and
/// simulated on `request.cluster`: for each decision the fastest by its estimate, and one that would be faster but does
/// not fit the memory. The fastest first. Of `chosen`, only rules that were asked for single layers, tensors and ops
/// are kept.
std::vector<Alternative> alternativesTo(const Trace &trace, const PlanRequest &request,
                                        const partitioner::Decisions &chosen);

/// What searches measure of a model, for PlanRequest.searchCache. Searches that share it may differ in the cluster,
/// the number of devices and what is asked of the split.
std::shared_ptr<SearchCache> newSearchCache();

struct EstimatedPlan {
  partitioner::Decisions strategy;
  partitioner::Estimate estimate;
};

/// Estimates of single plans of the space, from the same measured layers. `trace` and `request` must live as long.
class PlanEstimates {
public:
  PlanEstimates(const Trace &trace, const PlanRequest &request);
  ~PlanEstimates();
  /// Nothing if the model cannot be split so.
  std::optional<EstimatedPlan> of(const partitioner::PlanGroup &group, const partitioner::ScheduleChoice &schedule);

private:
  struct Impl;
  std::unique_ptr<Impl> impl;
};

} // namespace cleave::passes
