// Costs of collectives against closed forms with explicit numbers, and monotonicity: what must never be cheaper.
#include "partitioner/cost/Collectives.h"

#include "partitioner/cost/Nccl.h"
#include "runtime/plan/plan_generated.h"

#include <catch2/catch.hpp>

using namespace cleave;
using namespace cleave::partitioner;
using plan::CollectiveKind;

namespace {

const CollectiveKind kinds[] = {CollectiveKind::AllReduce, CollectiveKind::AllGather, CollectiveKind::ReduceScatter,
                                CollectiveKind::AllToAll, CollectiveKind::Broadcast};

/// 8 devices of one node: 120 GB/s each, 2 us per hop.
GroupLinks node(int computeCapability = 0) {
  return {.members = 8,
          .nodes = 1,
          .perNode = 8,
          .insideRate = 120e9,
          .insideLatency = 2e-6,
          .start = 5e-6,
          .nccl = computeCapability ? &ncclTuning(computeCapability) : nullptr};
}

/// 4 such nodes with 20 GB/s per node and 10 us between nodes.
GroupLinks nodes(int64_t count, int computeCapability = 0) {
  GroupLinks links = node(computeCapability);
  links.members = 8 * count, links.nodes = count;
  links.networkRate = 20e9, links.networkLatency = 10e-6;
  return links;
}

double seconds(CollectiveKind kind, double bytes, const GroupLinks &links) {
  return collectiveCost(kind, bytes, links).seconds.all();
}

} // namespace

TEST_CASE("on hosts all members exchange their blocks at the same time") {
  CHECK(seconds(CollectiveKind::AllGather, 8e9, node()) == Approx(5e-6 + 7 * 1e9 / 120e9 + 2e-6));
  CHECK(seconds(CollectiveKind::ReduceScatter, 8e9, node()) == Approx(5e-6 + 7 * 1e9 / 120e9 + 2e-6));
  CHECK(seconds(CollectiveKind::AllReduce, 8e9, node()) == Approx(5e-6 + 2 * (7 * 1e9 / 120e9 + 2e-6)));
  // A short vector is gathered by all members and reduced by each.
  CHECK(seconds(CollectiveKind::AllReduce, 8, node()) == Approx(5e-6 + 7 * 8 / 120e9 + 2e-6));
  // 8 members send 24/32 of their vector out of the node each.
  CHECK(seconds(CollectiveKind::AllGather, 32e9, nodes(4)) == Approx(5e-6 + 8 * 24e9 / 20e9 + 10e-6));
  CHECK(seconds(CollectiveKind::AllToAll, 32e6, nodes(4)) == Approx(5e-6 + 8 * 24e6 / 20e9 + 10e-6));
  CHECK(seconds(CollectiveKind::AllToAll, 8e6, node()) == Approx(5e-6 + 7e6 / 120e9 + 2e-6));
  // 3 levels of the tree inside a node, and 2 between nodes, each after the other.
  CHECK(seconds(CollectiveKind::Broadcast, 1e9, nodes(4)) ==
        Approx(5e-6 + 3 * (1e9 / 120e9 + 2e-6) + 2 * (1e9 / 20e9 + 10e-6)));
}

TEST_CASE("NCCL on one node: a ring for long vectors, its lightest protocol for short ones") {
  CollectiveCost cost = collectiveCost(CollectiveKind::AllReduce, 8e9, node(70));
  CHECK(cost.algorithm == Algorithm::Ring);
  CHECK(cost.seconds.all() == Approx(8.4e-6 + 14 * 3.4e-6 + 2 * 7 * 1e9 / 120e9)); // Simple
  CHECK(seconds(CollectiveKind::AllGather, 8e9, node(70)) == Approx(8.4e-6 + 7 * 3.4e-6 + 7 * 1e9 / 120e9));
  CHECK(seconds(CollectiveKind::ReduceScatter, 8e9, node(70)) == Approx(8.4e-6 + 7 * 3.4e-6 + 7 * 1e9 / 120e9));
  cost = collectiveCost(CollectiveKind::AllReduce, 8, node(70)); // LL
  CHECK(cost.algorithm == Algorithm::Ring);
  CHECK(cost.seconds.all() == Approx(6.6e-6 + 14 * 0.6e-6 + 2 * 7 / 39e9));
  // LL128: 120 of 128 bytes are data, and at most 20 GB/s of each channel, of which there are six.
  CHECK(seconds(CollectiveKind::AllGather, 4e6, node(70)) == Approx(14e-6 + 7 * 1.9e-6 + 7 * 0.5e6 / (0.92 * 120e9)));
  // Without NVLink there is no LL128, and hops take longer.
  GroupLinks pcie = node(70);
  pcie.nvlink = false, pcie.insideRate = 10e9;
  CHECK(seconds(CollectiveKind::AllGather, 4e6, pcie) == Approx(8.4e-6 + 7 * 5.7e-6 + 7 * 0.5e6 / 10e9));
}

TEST_CASE("NCCL between nodes: trees for few hops, rings as fast as the slowest link") {
  // Hops over a network that is 5 us slower than InfiniBand.
  CollectiveCost cost = collectiveCost(CollectiveKind::AllReduce, 8, nodes(4, 80));
  CHECK(cost.algorithm == Algorithm::Tree);
  CHECK(cost.seconds.fixed == Approx(6.8e-6 + 2 * (7 * 0.6e-6 + 2 * 10e-6)));
  cost = collectiveCost(CollectiveKind::AllReduce, 32e9, nodes(4, 80));
  CHECK(cost.algorithm == Algorithm::Ring);
  CHECK(cost.seconds.moving == Approx(2 * 31 * 1e9 / 20e9));
  CHECK(cost.seconds.fixed == Approx(1.4 * (8.4e-6 + 56 * 6e-6 + 6 * 19e-6)));
  CHECK(seconds(CollectiveKind::ReduceScatter, 32e9, nodes(4, 80)) ==
        Approx(8.4e-6 + 28 * 6e-6 + 3 * 19e-6 + 31 * 1e9 / 20e9));
  // On two nodes each of the two trees uses the network in one direction at a time.
  cost = collectiveCost(CollectiveKind::AllReduce, 16e9, nodes(2, 80));
  CHECK(cost.algorithm == Algorithm::Tree);
  CHECK(cost.seconds.moving == Approx(2 * 16e9 / (0.92 * 40e9)));
  GroupLinks slow = nodes(4, 80); // the links inside a node are slower
  slow.insideRate = 1e9;
  CHECK(collectiveCost(CollectiveKind::ReduceScatter, 32e9, slow).seconds.moving == Approx(31.0));
}

TEST_CASE("NCCL's channels have limits of their architecture") {
  GroupLinks fast = nodes(4, 80); // a tree over 10 channels of 17.8 GB/s at most
  fast.insideRate = fast.networkRate = 200e9;
  CHECK(collectiveCost(CollectiveKind::AllReduce, 1e6, fast).algorithm == Algorithm::Tree);
  CHECK(&ncclTuning(70) == &ncclTuning(75));
  CHECK(&ncclTuning(60) == &ncclTuning(70));
  CHECK(ncclTuning(100).computeCapability == 90);
}

TEST_CASE("one member takes no time") {
  for (const CollectiveKind kind : kinds)
    CHECK(seconds(kind, 1e9, GroupLinks{}) == 0);
}

TEST_CASE("a message: start, one hop, its bytes") {
  CHECK(messageSeconds(1e9, {.rate = 50e9, .latency = 3e-6, .start = 5e-6}).all() == Approx(8e-6 + 0.02));
}

TEST_CASE("more bytes, slower links, more groups on a link: never less time") {
  for (const int architecture : {0, 70, 80, 90})
    for (const CollectiveKind kind : kinds)
      for (GroupLinks links : {node(architecture), nodes(2, architecture), nodes(4, architecture)}) {
        double before = 0;
        for (double bytes = 0; bytes <= 1e10; bytes = bytes * 1.03 + 8) {
          const double now = seconds(kind, bytes, links);
          CHECK(now >= before);
          before = now;
          GroupLinks shared = links;
          shared.networkRate /= 2;
          CHECK(seconds(kind, bytes, shared) >= now);
          GroupLinks slow = links;
          slow.insideRate /= 2;
          slow.insideLatency *= 2;
          CHECK(seconds(kind, bytes, slow) >= now);
        }
      }
}
