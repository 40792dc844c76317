// Whether messages between stages are sent in slices, decided by the cluster.
#pragma once
#include "ir/dist/Sharding.h"
#include "partitioner/cluster/Cluster.h"

namespace cleave::partitioner {

/// Decisions::scatterGather for this mesh on the cluster: bytes of a message from which slices are faster; 0: none is.
int64_t slicedMessageBytes(const Cluster &cluster, const Mesh &mesh);

} // namespace cleave::partitioner
