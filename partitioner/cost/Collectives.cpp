// Closed forms of the collectives' algorithms.
#include "partitioner/cost/Collectives.h"

#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace cleave::partitioner {

namespace {

/// Hops from the root of a binary tree over `count` members to its leaves.
double levels(int64_t count) { return count <= 1 ? 0 : std::bit_width(static_cast<uint64_t>(count - 1)); }

class Group {
public:
  explicit Group(const GroupLinks &links) : links(links) {}

  /// One pass of S bytes round the ring: a reduce-scatter, or an all-gather.
  double ring(double bytes) const {
    const double network = links.nodes > 1 ? double(links.nodes) : 0, inside = double(links.members) - network;
    return others(links.members) * (bytes / slowest() + inside * links.insideLatency + network * links.networkLatency);
  }

  /// One way between the root and the leaves.
  double tree(double bytes) const {
    return bytes / slowest() + levels(links.perNode) * links.insideLatency + levels(links.nodes) * links.networkLatency;
  }

  /// One pass inside the nodes and one between them.
  double hierarchical(double bytes) const {
    if (!even() || links.nodes == 1 || links.perNode == 1)
      return INFINITY;
    return others(links.perNode) * bytes / links.insideRate + others(links.nodes) * bytes / links.networkRate +
           double(links.perNode - 1) * links.insideLatency + double(links.nodes - 1) * links.networkLatency;
  }

  /// All blocks are sent at the same time.
  double direct(double bytes) const {
    const auto n = double(links.members), p = double(links.perNode);
    const double inside = links.perNode > 1 ? (p - 1) / n * bytes / links.insideRate : 0;
    const double network = links.nodes > 1 ? p * (n - p) / n * bytes / links.networkRate : 0;
    return std::max(inside, network) + (links.nodes > 1 ? links.networkLatency : links.insideLatency);
  }

private:
  static double others(int64_t count) { return double(count - 1) / double(count); }
  bool even() const { return links.members == links.nodes * links.perNode; }
  double slowest() const {
    const double network = links.nodes > 1 ? links.networkRate : INFINITY;
    return std::min(network, links.perNode > 1 ? links.insideRate : INFINITY);
  }
  const GroupLinks &links;
};

CollectiveCost cheapest(double start, std::initializer_list<CollectiveCost> choices) {
  CollectiveCost best = *std::min_element(choices.begin(), choices.end(),
                                          [](const auto &a, const auto &b) { return a.seconds < b.seconds; });
  best.seconds += start;
  return best;
}

} // namespace

CollectiveCost collectiveCost(plan::CollectiveKind kind, double bytes, const GroupLinks &links) {
  if (links.members <= 1)
    return {};
  const Group group(links);
  switch (kind) {
  case plan::CollectiveKind::AllReduce:
    return cheapest(links.start, {{2 * group.ring(bytes), Algorithm::Ring},
                                  {2 * group.tree(bytes), Algorithm::Tree},
                                  {2 * group.hierarchical(bytes), Algorithm::Hierarchical}});
  case plan::CollectiveKind::AllGather:
  case plan::CollectiveKind::ReduceScatter:
    return cheapest(links.start,
                    {{group.ring(bytes), Algorithm::Ring}, {group.hierarchical(bytes), Algorithm::Hierarchical}});
  case plan::CollectiveKind::Broadcast:
    return cheapest(links.start, {{group.tree(bytes), Algorithm::Tree}});
  case plan::CollectiveKind::AllToAll:
    return cheapest(links.start, {{group.direct(bytes), Algorithm::Direct}});
  }
  return {};
}

double messageSeconds(double bytes, const MessageLink &link) { return link.start + link.latency + bytes / link.rate; }

} // namespace cleave::partitioner
