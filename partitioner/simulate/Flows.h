// Which flows of a plan share links.
#pragma once
#include "partitioner/simulate/Classes.h"
#include "partitioner/simulate/Topology.h"

#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace cleave::partitioner {

/// Adds the flows and the links that they share to `ranks`, whose classes and meetings are known, except the flows of
/// their peers. `programs` has the programs that the ranks of `plan` run. `nodes`: for each class of nodes the ranks of
/// one of them.
void addFlows(const plan::Plan &programs, const plan::Plan &plan, Topology &topology,
              const std::vector<std::vector<uint32_t>> &nodes, RankClasses &ranks);

/// Of one link: by flow, the share that the flow's transfers use as if each were alone (Flow::stretch not applied).
using FlowShares = std::map<uint32_t, double>;

/// What the flows use of the links of one node, by link (LinkUse). `ranks` has its flows. `node`: the node's ranks.
std::map<uint64_t, FlowShares> linksOfNode(const plan::Plan &plan, Topology &topology, const RankClasses &ranks,
                                           std::span<const uint32_t> node);

} // namespace cleave::partitioner
