// Where ranks lie in a cluster, and the links that their groups and messages use.
//
// A node has these links, each in two directions: its network; for each device its PCIe link, over which it reaches the
// network, and its ports to the other devices of the node; and where a cluster file gives the links of pairs, those.
#pragma once
#include "partitioner/cluster/Cluster.h"
#include "partitioner/cost/Collectives.h"
#include "partitioner/cost/Constants.h"
#include "runtime/plan/PlanTypes.h"

#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace cleave::partitioner {

/// The share of a link that a transfer uses at full speed.
struct LinkUse {
  uint64_t link; ///< number of the link in its node
  double share;  ///< of the rate that the link reaches for this transfer; at most 1
};

/// What a number of a link means. Devices are numbered in their node.
enum class LinkKind : uint8_t { Network, Pcie, Port, Pair };
struct LinkEnds {
  LinkKind kind;
  bool in = false;     ///< direction; not of a pair
  uint32_t device = 0; ///< not of the network
  uint32_t other = 0;  ///< of a pair: the device to which the link leads
};
LinkEnds linkEnds(uint64_t link);

class Topology {
public:
  /// `devices`: those on which the ranks run, in their order; empty: rank r runs on device r. Throws userError if the
  /// cluster has fewer devices than the plan ranks, or devices of another backend.
  Topology(const plan::Plan &plan, const Cluster &cluster, std::span<const uint32_t> devices = {});
  /// Of ranks without a plan, whose groups are not known. `devices`: as above.
  Topology(int64_t ranks, const Cluster &cluster, std::span<const uint32_t> devices = {});

  const Cluster::Place &place(uint32_t rank) const { return places[rank]; }
  /// Whether it matters which device of its node a rank runs on.
  bool ordered(size_t nodeGroup) const;

  /// The links of a group, as if no other transfer used them.
  GroupLinks group(uint32_t index);
  GroupLinks group(std::span<const uint32_t> ranks);
  /// The link of a message from `rank` to its peer, as if no other transfer used it.
  MessageLink message(uint32_t rank, uint32_t peer) const;

  /// Bytes per second over the network of the node of `rank`.
  double networkRate(uint32_t rank) const;

  /// What a group's collective uses of the links of one node. `members`: the group's ranks on the node.
  std::vector<LinkUse> uses(const GroupLinks &links, std::span<const uint32_t> members);
  /// What a message uses of the links of its sender's node, or (`receiver`) of its receiver's node if that is another.
  std::vector<LinkUse> uses(uint32_t from, uint32_t to, bool receiver) const;

private:
  const DeviceConstants &constants(uint32_t rank) const { return kinds[places[rank].kind]; }
  const NodeGroup &nodeOf(uint32_t rank) const { return cluster.nodes[places[rank].group]; }
  const Link &insideOf(uint32_t rank) const;
  double insideFraction(std::span<const uint32_t> ranks) const;
  const GroupRings &ringsOf(std::span<const uint32_t> ranks);
  double ownNetworkRate(uint32_t rank) const; ///< the same of its device

  const plan::Plan *plan = nullptr;
  const Cluster &cluster;
  std::vector<DeviceConstants> kinds; ///< by index of Cluster::devices
  std::vector<Cluster::Place> places;
  std::map<std::pair<size_t, std::vector<uint32_t>>, GroupRings> rings; ///< by group of nodes, and devices of a node
};

/// Bytes per second at which a collective's bytes move: of the slowest link of its rings.
double busRate(const GroupLinks &links);

} // namespace cleave::partitioner
