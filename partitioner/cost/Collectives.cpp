// Collectives of hosts, and of GPUs where NCCL has no algorithm of its own.
#include "partitioner/cost/Collectives.h"

#include "partitioner/cost/Nccl.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <bit>

namespace cleave::partitioner {

namespace {

constexpr double shortBytes = 16 << 10; // of a vector that is gathered and reduced by all: runtime/comm/Exchange.cpp

/// Hops from the root of a binary tree over `count` members to its leaves.
double levels(int64_t count) { return count <= 1 ? 0 : std::bit_width(static_cast<uint64_t>(count - 1)); }

/// All blocks are sent at the same time.
TransferSeconds exchange(double bytes, const GroupLinks &links) {
  const auto n = double(links.members), p = double(links.perNode);
  const double inside = links.perNode > 1 ? (p - 1) / n * bytes / links.insideRate : 0;
  const double network = links.nodes > 1 ? p * (n - p) / n * bytes / links.networkRate : 0;
  return {links.nodes > 1 ? links.networkLatency : links.insideLatency, std::max(inside, network)};
}

/// Every hop passes the whole on after it has arrived.
TransferSeconds broadcastTree(double bytes, const GroupLinks &links) {
  TransferSeconds time;
  for (const auto &[hops, latency, rate] : {std::tuple{levels(links.perNode), links.insideLatency, links.insideRate},
                                            std::tuple{levels(links.nodes), links.networkLatency, links.networkRate}})
    if (hops > 0)
      time.fixed += hops * latency, time.moving += hops * bytes / rate;
  return time;
}

TransferSeconds twice(const TransferSeconds &time) { return {2 * time.fixed, 2 * time.moving}; }

CollectiveCost hostCost(plan::CollectiveKind kind, double bytes, const GroupLinks &links) {
  switch (kind) {
  case plan::CollectiveKind::AllReduce: {
    const TransferSeconds small = exchange(double(links.members) * bytes, links), large = twice(exchange(bytes, links));
    return {bytes <= shortBytes && small.all() < large.all() ? small : large, Algorithm::Exchange};
  }
  case plan::CollectiveKind::Broadcast:
    return {broadcastTree(bytes, links), Algorithm::Tree};
  case plan::CollectiveKind::AllGather:
  case plan::CollectiveKind::ReduceScatter:
  case plan::CollectiveKind::AllToAll:
    break;
  }
  return {exchange(bytes, links), Algorithm::Exchange};
}

} // namespace

CollectiveCost collectiveCost(plan::CollectiveKind kind, double bytes, const GroupLinks &links) {
  if (links.members <= 1)
    return {};
  if (links.nccl && kind != plan::CollectiveKind::AllToAll)
    return ncclCost(kind, bytes, links);
  CollectiveCost cost = hostCost(kind, bytes, links);
  cost.seconds.fixed += links.start;
  return cost;
}

TransferSeconds messageSeconds(double bytes, const MessageLink &link) {
  return {link.start + link.latency, bytes / link.rate};
}

} // namespace cleave::partitioner
