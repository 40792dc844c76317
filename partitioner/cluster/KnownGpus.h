// Clusters of GPUs that are known by their names.
#pragma once
#include "partitioner/cluster/Cluster.h"

#include <cstdint>
#include <optional>
#include <string>

namespace cleave::partitioner {

/// One machine with `count` GPUs. `name`: as the driver says it, "NVIDIA H100 80GB HBM3"; `bytes`: of its memory.
/// Rates are those of the manufacturer's data sheets. nullopt for an unknown GPU.
std::optional<Cluster> clusterOfGpus(const std::string &name, double bytes, int64_t count);

} // namespace cleave::partitioner
