// Which flows of a plan share links.
#pragma once
#include "partitioner/simulate/Classes.h"
#include "partitioner/simulate/Topology.h"

#include <cstdint>
#include <vector>

namespace cleave::partitioner {

/// Adds the flows and the links that they share to `ranks`, whose classes and meetings are known, except the flows of
/// their peers. `meetingOf`: per group of the plan. `nodes`: for each class of nodes the ranks of one of them.
void addFlows(const plan::Plan &plan, Topology &topology, const std::vector<uint32_t> &meetingOf,
              const std::vector<std::vector<uint32_t>> &nodes, RankClasses &ranks);

} // namespace cleave::partitioner
