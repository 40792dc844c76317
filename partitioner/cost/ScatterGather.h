// Decides when a message between stages is cheaper in slices.
#pragma once
#include "partitioner/cluster/Cluster.h"
#include "runtime/base/Mesh.h"

#include <cstdint>

namespace cleave::partitioner {

/// The number of bytes from which a value that all `tp` ranks of a stage hold is sent to the next stage faster in
/// slices: each rank sends one of `tp` slices, and the receivers gather the slices over their node's links (Narayanan
/// et al. 2021, section 4.1). 0: never, because all stages are in one node, or a tp group spans several. Throws
/// userError if the cluster has fewer devices than the mesh.
///
/// A message of B bytes takes B / r + l, with latency l and rate r, the network rate of a node divided by the number of
/// its ranks that send at once. In slices it takes B / (tp r) + l, plus a ring of tp - 1 steps inside the node.
int64_t scatterGatherBytes(const Cluster &cluster, const Mesh &mesh);

} // namespace cleave::partitioner
