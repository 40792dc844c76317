// The costs of a plan's stages on a cluster: the input of the search for a schedule (partitioner/pipeline).
#pragma once
#include "partitioner/cluster/Cluster.h"
#include "partitioner/pipeline/Simulate.h"
#include "runtime/plan/PlanTypes.h"

#include <vector>

namespace cleave::partitioner {

struct MeasuredStages {
  std::vector<StageCosts> stages; ///< times of a stage's slowest rank, bytes of the rank that keeps most
  std::vector<double> limits; ///< bytes of each coordinate on axis pp for the activations and gradients of microbatches
};

/// Measures `plan`, whose schedule is oneAtATime (pipeline/Search.h): all memory of a rank except one microbatch's
/// activations and gradients is needed with any schedule. The time of a segment is that of its steps in their streams,
/// as if its messages took no time. `plan` has passed the checks of its structure; throws as simulate does.
MeasuredStages measureStages(const plan::Plan &plan, const Cluster &cluster);

} // namespace cleave::partitioner
