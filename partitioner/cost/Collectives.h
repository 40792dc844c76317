// Seconds of collectives and messages by algorithm and topology.
//
// On GPUs a collective takes what NCCL's tuning model says (Nccl.h). On hosts it takes what this project's
// communicators do (runtime/comm): every member exchanges blocks with all others at the same time. A group has n
// members on k nodes, p on each. S: bytes; a block travels one hop, with one latency; a byte takes 1 / rate.
//
//   exchange(S)       max((p-1)/n S / inside, p (n-p)/n S / network) + one hop
//   all-gather, reduce-scatter (S: of the whole)      exchange(S)
//   all-reduce        reduce-scatter and all-gather: 2 exchange(S); up to 16 KiB the vectors of all members, gathered
//                     by all, if that is faster: exchange(n S)
//   all-to-all        exchange(S), also on GPUs, where it is sends and receives
//   broadcast         a binomial tree: log2 p times (S / inside + one hop) + log2 k times (S / network + one hop)
#pragma once
#include "runtime/plan/PlanTypes.h"

#include <cstdint>

namespace cleave::partitioner {

struct NcclTuning; // Nccl.h

/// The placement of a group in the cluster, and the properties of its links.
struct GroupLinks {
  int64_t members = 1, nodes = 1, perNode = 1; ///< perNode: the most members on one node
  double insideRate = 0, insideLatency = 0;    ///< bytes per second of a device, seconds
  double networkRate = 0, networkLatency = 0;  ///< bytes per second of a node, seconds
  double start = 0;                            ///< seconds before the first byte is sent; not for NCCL's collectives
  bool nvlink = true;                          ///< whether all links inside a node are NVLinks
  const NcclTuning *nccl = nullptr;            ///< on GPUs: of the oldest device
  auto operator<=>(const GroupLinks &) const = default;
};

enum class Algorithm : uint8_t { None, Ring, Tree, Exchange };

/// Seconds of a transfer: a fixed part, in which no link is busy, and the part in which bytes move at full rate.
struct TransferSeconds {
  double fixed = 0, moving = 0;
  double all() const { return fixed + moving; }
};

struct CollectiveCost {
  TransferSeconds seconds;
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
TransferSeconds messageSeconds(double bytes, const MessageLink &link);

} // namespace cleave::partitioner
