// Ranks that behave alike, so that one of them is simulated for all.
//
// Two ranks are of one class if they run the same program on the same kind of device, their groups have members of the
// same classes over equal links, and their peers are of the same classes over equal links: the coarsest equitable
// partition, found by refinement (Paige and Tarjan, Three partition refinement algorithms, 1987). By induction over the
// steps, ranks of a class do the same at the same time.
#pragma once
#include "partitioner/cluster/Cluster.h"
#include "partitioner/cost/Collectives.h"
#include "runtime/plan/PlanTypes.h"

#include <cstdint>
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
};

/// `plan` has passed the checks of its structure. Throws userError if the cluster has fewer devices than the plan
/// ranks, or devices of another backend.
RankClasses classifyRanks(const plan::Plan &plan, const Cluster &cluster);

} // namespace cleave::partitioner
