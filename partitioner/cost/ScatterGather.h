// Decides when a message between stages is cheaper in slices.
#pragma once
#include "partitioner/cluster/Cluster.h"

#include <cstdint>
#include <functional>

namespace cleave::partitioner {

/// The number of bytes from which a value that all `tp` ranks of a stage hold is sent to the next stage faster in
/// slices: each rank sends one of `tp` slices, and the receivers gather the slices over their node's links (Narayanan
/// et al. 2021, section 4.1). 0: never, because all stages are in one node, or a tp group spans several. Throws
/// userError if the cluster has fewer devices. `rankAt`: the rank, which is also the device, at coordinates on pp, dp,
/// tp.
///
/// A message of B bytes takes B / r + l, with latency l and rate r, the network rate of a node divided by the number of
/// its ranks that send at once. In slices it takes B / (tp r) + l, plus a ring of tp - 1 steps inside the node.
int64_t scatterGatherBytes(const Cluster &cluster, int64_t dp, int64_t tp, int64_t pp,
                           const std::function<int64_t(int64_t, int64_t, int64_t)> &rankAt);

} // namespace cleave::partitioner
