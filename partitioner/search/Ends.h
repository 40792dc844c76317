// What an iteration takes beside its passes: parameters are gathered before the first microbatch, gradients summed and
// parameters updated after the last one. This is the place that knows what of it today's executors hide:
//
//   - A host does one thing after the other.
//   - A GPU has one stream for computation and one for collectives, or two, one for those among replicas; each in the
//     order of the plan's list. So first forward passes hide gathers up to the first collective of the pass itself that
//     is in their stream, which waits for all of them; and the last backward pass hides sums, but none begins before
//     the pass's own last collective in their stream.
#pragma once
#include "partitioner/search/LayerCosts.h"

#include <vector>

namespace cleave::partitioner {

/// When each stage of a rank may begin at the earliest, so that all its layers have their gathered parameters in time,
/// in seconds. `stages`: their layers. `scale`: the rank's parameters over those of `use`. `oneMicrobatch`: there is no
/// other one, so that gradients are not added up.
std::vector<double> readyTimes(const PlanCosts &use, const std::vector<std::vector<const LayerCost *>> &stages,
                               double scale, bool oneMicrobatch = false);

/// A stage of a rank, with the times of its last passes, in seconds.
struct StagePasses {
  std::vector<const LayerCost *> layers;
  double lastWeights = 0;   ///< the beginning of the last pass that computes gradients of weights
  double lastInputsEnd = 0; ///< if the backward pass is split: the end of the last one for gradients of inputs
  bool split = false;
};

/// A gradient that is summed over positions of the pipeline, because several read the parameter.
struct LateSum {
  double seconds = 0;
  double ready = 0; ///< when the last of its terms is there
};

/// When the stream of a rank's sums of gradients has ended, which may be before its last pass, which ends at `end`.
double endOfSums(const PlanCosts &use, const std::vector<StagePasses> &stages, double end,
                 const std::vector<LateSum> &tied = {});

} // namespace cleave::partitioner
