// Reads the cluster of a request.
#include "passes/search/PlanRequest.h"

namespace cleave::passes {

std::optional<partitioner::Cluster> clusterOf(const PlanRequest &request) {
  if (request.cluster.empty())
    return std::nullopt;
  auto cluster = partitioner::Cluster::parse(request.cluster, "the cluster");
  if (request.device)
    for (partitioner::DeviceKind &kind : cluster.devices)
      kind.memoryGib = request.device->bytesOfRank() / (1 << 30);
  return cluster;
}

} // namespace cleave::passes
