// How much of the links of a node an iteration uses.
#pragma once
#include "partitioner/simulate/Simulate.h"
#include "partitioner/simulate/Topology.h"

#include <span>
#include <vector>

namespace cleave::partitioner {

/// Links of a node with the same load.
struct LinkLoad {
  std::vector<LinkEnds> links; ///< of one kind and direction
  std::vector<double> byTime;  ///< share of the link's rate in equal parts of the iteration
  double mean = 0;
};

/// Nodes whose ranks are of the same classes, in the same order.
struct NodeLoads {
  std::vector<uint32_t> ranks; ///< of the first one
  std::vector<uint32_t> nodes; ///< numbers in the cluster
  std::vector<LinkLoad> links; ///< those that carry anything
};

/// `simulation` has its traffic. `parts`: the number of parts of the iteration. At most `mostNodes` nodes get loads.
std::vector<NodeLoads> nodeLoads(const plan::Plan &plan, const Cluster &cluster, const Simulation &simulation,
                                 size_t parts, size_t mostNodes);

} // namespace cleave::partitioner
