// What an iteration takes beside its passes: parameters are gathered before the first microbatch, gradients summed and
// parameters updated after the last one. This is the place that knows what of it today's executors hide:
//
//   - A host does one thing after the other.
//   - A GPU has one stream for computation and one for all collectives, each in the order of the plan's list. So first
//     forward passes hide gathers up to the first collective of the pass itself, which waits for all of them; and the
//     last backward pass hides sums, but none begins before the pass's own last collective.
#pragma once
#include "partitioner/search/LayerCosts.h"

#include <vector>

namespace cleave::partitioner {

/// A stage of a rank, with the times of its passes that matter at the ends, in seconds.
struct StagePasses {
  std::vector<const LayerCost *> layers;
  double firstForward = 0;  ///< the beginning of the first microbatch's
  double lastWeights = 0;   ///< the beginning of the last pass that computes gradients of weights
  double lastInputsEnd = 0; ///< if the backward pass is split: the end of the last one for gradients of inputs
  bool split = false;
};

/// Seconds by which gathers and computation at the beginning of an iteration delay the passes of a rank. `scale`: its
/// parameters over those of `use`.
double delayOfBegin(const PlanCosts &use, const std::vector<StagePasses> &stages, double scale);

/// A gradient that is summed over positions of the pipeline, because several read the parameter.
struct LateSum {
  double seconds = 0;
  double ready = 0; ///< when the last of its terms is there
};

/// When a rank ends whose last pass ends at `end`: after gradients are summed, and parameters updated.
double endOfUpdate(const PlanCosts &use, const std::vector<StagePasses> &stages, double scale, double end,
                   const std::vector<LateSum> &tied = {});

} // namespace cleave::partitioner
