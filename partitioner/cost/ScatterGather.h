// When a message between stages is cheaper in slices.
#pragma once
#include "partitioner/cluster/Cluster.h"

#include <cstdint>

namespace cleave::partitioner {

/// From how many bytes on a value that all `tp` ranks of a stage hold crosses to the next stage faster in slices: each
/// rank sends 1 / tp of it, and the receivers gather the slices over their node's links (Narayanan et al. 2021, section
/// 4.1). 0: never, because stages lie in one node, or a tp group lies on several. Rank = (stage * dp + d) * tp + t runs
/// on device `rank`. Throws userError if the cluster has fewer devices.
///
/// A message of B bytes takes B / r + l, where the ranks of a node that send at once share its network rate; in slices
/// B / (tp r) + l, and a ring of tp - 1 steps inside the node.
int64_t scatterGatherBytes(const Cluster &cluster, int64_t dp, int64_t tp, int64_t pp);

} // namespace cleave::partitioner
