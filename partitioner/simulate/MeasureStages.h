// What the stages of a plan cost on a cluster: what the search for a schedule (partitioner/pipeline) is given.
#pragma once
#include "partitioner/cluster/Cluster.h"
#include "partitioner/pipeline/Simulate.h"
#include "runtime/plan/PlanTypes.h"

#include <vector>

namespace cleave::partitioner {

struct MeasuredStages {
  std::vector<StageCosts> stages; ///< times of a stage's slowest rank, bytes of the rank that keeps most
  std::vector<double> limits; ///< bytes that each coordinate on axis pp has for what its stages keep for microbatches
};

/// Measures `plan`, whose schedule is oneAtATime (pipeline/Search.h): what a rank needs beside one microbatch's
/// activations and gradients, it needs with any schedule. The time of a segment is that of its steps in their streams,
/// as if its messages were there. `plan` has passed the checks of its structure; throws as simulate does.
MeasuredStages measureStages(const plan::Plan &plan, const Cluster &cluster);

} // namespace cleave::partitioner
