// Ranks that behave alike, so that one of them is simulated for all.
//
// Two ranks are of one class if they run the same program on the same kind of device, their groups have members of the
// same classes over equal links, their peers are of the same classes over equal links, and their nodes have ranks of
// the same classes in the same groups: the coarsest equitable partition, found by refinement (Paige and Tarjan, Three
// partition refinement algorithms, 1987). By induction over the steps, ranks of a class do the same at the same time.
#pragma once
#include "partitioner/cluster/Cluster.h"
#include "partitioner/cost/Collectives.h"
#include "partitioner/pipeline/Traffic.h"
#include "runtime/plan/PlanTypes.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace cleave::partitioner {

/// An entry of a rank's table of groups, alike in all ranks of the class.
struct GroupUse {
  uint32_t meeting; ///< index of RankClasses::meetings: the classes and entries of the group's members
  uint32_t first;   ///< the first entry that names the same group
  GroupLinks links;
};
/// An entry of a rank's table of peers.
struct PeerUse {
  uint32_t peerClass;
  MessageLink link;
  uint32_t sent, received; ///< indices of RankClasses::flows: messages to the peer, and from it
};
struct AlikeRanks {
  uint32_t representative; ///< the first rank
  uint32_t ranks;          ///< number of ranks
  uint32_t program;
  size_t kind; ///< index of Cluster::devices
  std::vector<GroupUse> groups;
  std::vector<PeerUse> peers;
};

/// The classes that take part in a collective, each with its first entry of Rank.groups that names the group.
struct Meeting {
  struct Member {
    uint32_t rankClass, entry;
    auto operator<=>(const Member &) const = default;
  };
  std::vector<Member> members;
};

struct RankClasses {
  std::vector<AlikeRanks> classes;
  std::vector<uint32_t> classOf; ///< per rank
  std::vector<Meeting> meetings;
  std::vector<Flow> flows; ///< the collectives of each of `meetings`, then the messages from one class to another
  uint32_t links = 0;      ///< links that cannot carry all of their flows at full speed
};

/// `plan` has passed the checks of its structure. `devices`: see Topology. `table`: a plan with the ranks and groups
/// that run the programs of `plan`; null: its own. Throws userError if the cluster has fewer devices than the plan
/// ranks, or devices of another backend.
RankClasses classifyRanks(const plan::Plan &plan, const Cluster &cluster, std::span<const uint32_t> devices = {},
                          const plan::Plan *table = nullptr);

} // namespace cleave::partitioner
