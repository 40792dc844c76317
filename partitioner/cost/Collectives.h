// Seconds of collectives and messages by algorithm and topology.
//
// A group has n members on k nodes, at most p on each. S: bytes; a hop costs a latency, a byte 1 / rate.
//
//   all-reduce   ring           2 (n-1)/n S / r + 2 (n-1)/n (latencies of the ring's n hops)
//                tree           2 S / r + 2 (log2 p hops inside + log2 k hops between nodes)
//                hierarchical   2 (p-1)/p S / inside + 2 (k-1)/k S / network + 2 ((p-1) hops + (k-1) hops)
//   all-gather, reduce-scatter (S: of the whole)      half of the ring's, or half of the hierarchical one's
//   broadcast    tree           S / r + (log2 p + log2 k hops)
//   all-to-all   direct         max((p-1)/n S / inside, p (n-p)/n S / network) + one hop
//
// r is the rate of the slowest link that the ring or tree crosses. The cheapest algorithm is taken, as NCCL does
// (Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in MPICH, 2005; NCCL 2.4: double
// binary trees, which is why a tree loses no bandwidth).
#pragma once
#include "runtime/plan/PlanTypes.h"

#include <cstdint>

namespace cleave::partitioner {

/// The placement of a group in the cluster, and the properties of its links.
struct GroupLinks {
  int64_t members = 1, nodes = 1, perNode = 1; ///< perNode: the most members on one node
  double insideRate = 0, insideLatency = 0;    ///< bytes per second of a device, seconds
  double networkRate = 0, networkLatency = 0;  ///< bytes per second of a node, or of a group's share of it; seconds
  double start = 0;                            ///< seconds before the first byte is sent
  auto operator<=>(const GroupLinks &) const = default;
};

enum class Algorithm : uint8_t { None, Ring, Tree, Hierarchical, Direct };

struct CollectiveCost {
  double seconds = 0;
  Algorithm algorithm = Algorithm::None;
};

/// `bytes`: AllReduce, Broadcast: the vector; AllGather, ReduceScatter: the whole, gathered; AllToAll: what one member
/// sends, including its own block. A group of one member takes no time.
CollectiveCost collectiveCost(plan::CollectiveKind kind, double bytes, const GroupLinks &links);

/// The link of a message.
struct MessageLink {
  double rate = 0, latency = 0, start = 0; ///< bytes per second, seconds
  auto operator<=>(const MessageLink &) const = default;
};
double messageSeconds(double bytes, const MessageLink &link);

} // namespace cleave::partitioner
