// Reads the cluster of a request, and tells what it leaves open.
#include "passes/search/PlanRequest.h"

#include "partitioner/schedule/Named.h"

namespace cleave::passes {

using partitioner::RowState;

RowState stateOf(const partitioner::DecisionRow &row, const PlanRequest &request) {
  const bool trains = request.purpose == Purpose::Training;
  if (request.toSearch)
    return partitioner::stateOf(row, request.toSearch->pins, trains || row.word == "mesh");
  if (trains && request.strategy.scheduleIsOpen() && row.word == "schedule")
    return RowState::Open;
  if (row.word == "recompute" && trains && request.strategy.recompute.empty())
    return request.device || request.cluster ? RowState::DefaultUnlessMemory : RowState::Default;
  return request.strategy.originOf(std::string(row.word)) == "default" ? RowState::Default : RowState::Pinned;
}

std::optional<partitioner::Cluster> clusterOf(const PlanRequest &request) {
  if (!request.cluster)
    return std::nullopt;
  partitioner::Cluster cluster = request.cluster->cluster;
  if (request.device)
    for (partitioner::DeviceKind &kind : cluster.devices)
      kind.memoryGib = request.device->bytesOfRank() / (1 << 30);
  return cluster;
}

} // namespace cleave::passes
