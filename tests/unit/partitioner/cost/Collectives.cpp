// Costs of collectives against closed forms with explicit numbers, and monotonicity: what must never be cheaper.
#include "partitioner/cost/Collectives.h"

#include "runtime/plan/plan_generated.h"

#include <catch2/catch.hpp>

using namespace cleave;
using namespace cleave::partitioner;
using plan::CollectiveKind;

namespace {

const CollectiveKind kinds[] = {CollectiveKind::AllReduce, CollectiveKind::AllGather, CollectiveKind::ReduceScatter,
                                CollectiveKind::AllToAll, CollectiveKind::Broadcast};

/// 8 devices of one node: 100 GB/s each, 2 us per hop.
GroupLinks node() {
  return {.members = 8, .nodes = 1, .perNode = 8, .insideRate = 100e9, .insideLatency = 2e-6, .start = 5e-6};
}

/// 4 such nodes with 20 GB/s per node and 10 us between nodes.
GroupLinks fourNodes() {
  GroupLinks links = node();
  links.members = 32, links.nodes = 4;
  links.networkRate = 20e9, links.networkLatency = 10e-6;
  return links;
}

double seconds(CollectiveKind kind, double bytes, const GroupLinks &links) {
  return collectiveCost(kind, bytes, links).seconds;
}

} // namespace

TEST_CASE("a ring on one node: 2 (n-1)/n of the bytes and 2 (n-1) hops") {
  const CollectiveCost cost = collectiveCost(CollectiveKind::AllReduce, 8e9, node());
  CHECK(cost.algorithm == Algorithm::Ring);
  CHECK(cost.seconds == Approx(5e-6 + 2 * 7 * 1e9 / 100e9 + 14 * 2e-6)); // 140 ms
  // All-gather and reduce-scatter take half of it.
  CHECK(seconds(CollectiveKind::AllGather, 8e9, node()) == Approx(5e-6 + 7 * 1e9 / 100e9 + 7 * 2e-6));
  CHECK(seconds(CollectiveKind::ReduceScatter, 8e9, node()) == Approx(5e-6 + 7 * 1e9 / 100e9 + 7 * 2e-6));
}

TEST_CASE("a tree takes few bytes: 3 levels up and down") {
  const CollectiveCost cost = collectiveCost(CollectiveKind::AllReduce, 8, node());
  CHECK(cost.algorithm == Algorithm::Tree);
  CHECK(cost.seconds == Approx(5e-6 + 2 * (8 / 100e9 + 3 * 2e-6)));
  CHECK(seconds(CollectiveKind::Broadcast, 1e9, node()) == Approx(5e-6 + 1e9 / 100e9 + 3 * 2e-6));
}

TEST_CASE("between nodes a hierarchy moves fewer bytes over the network than a ring") {
  const double bytes = 32e9;
  CollectiveCost cost = collectiveCost(CollectiveKind::AllReduce, bytes, fourNodes());
  CHECK(cost.algorithm == Algorithm::Hierarchical);
  CHECK(cost.seconds == Approx(5e-6 + 2 * (7 * 4e9 / 100e9 + 3 * 8e9 / 20e9 + 7 * 2e-6 + 3 * 10e-6)));
  cost = collectiveCost(CollectiveKind::AllGather, bytes, fourNodes());
  CHECK(cost.seconds == Approx(5e-6 + 7 * 4e9 / 100e9 + 3 * 8e9 / 20e9 + 7 * 2e-6 + 3 * 10e-6));
}

TEST_CASE("between nodes a ring is as slow as its slowest link") {
  GroupLinks uneven = fourNodes(); // 30 members: no hierarchy
  uneven.members = 30;
  const CollectiveCost cost = collectiveCost(CollectiveKind::AllReduce, 30e9, uneven);
  CHECK(cost.algorithm == Algorithm::Ring);
  CHECK(cost.seconds == Approx(5e-6 + 2 * 29 * 1e9 / 20e9 + 2.0 * 29 / 30 * (26 * 2e-6 + 4 * 10e-6)));
  GroupLinks slow = fourNodes(); // the links inside a node are slower
  slow.insideRate = 1e9;
  CHECK(collectiveCost(CollectiveKind::ReduceScatter, 32e9, slow).seconds ==
        Approx(5e-6 + 7 * 4e9 / 1e9 + 3 * 8e9 / 20e9 + 7 * 2e-6 + 3 * 10e-6));
}

TEST_CASE("all-to-all: what leaves a node shares its network") {
  // 8 members send 24/32 of 32 MB out of the node each.
  CHECK(seconds(CollectiveKind::AllToAll, 32e6, fourNodes()) == Approx(5e-6 + 8 * 24e6 / 20e9 + 10e-6));
  CHECK(seconds(CollectiveKind::AllToAll, 8e6, node()) == Approx(5e-6 + 7e6 / 100e9 + 2e-6));
}

TEST_CASE("one member takes no time") {
  for (const CollectiveKind kind : kinds)
    CHECK(collectiveCost(kind, 1e9, GroupLinks{}).seconds == 0);
}

TEST_CASE("a message: start, one hop, its bytes") {
  CHECK(messageSeconds(1e9, {.rate = 50e9, .latency = 3e-6, .start = 5e-6}) == Approx(8e-6 + 0.02));
}

TEST_CASE("more bytes, slower links, more groups on a link: never less time") {
  for (const CollectiveKind kind : kinds)
    for (GroupLinks links : {node(), fourNodes()}) {
      double before = 0;
      for (double bytes = 0; bytes <= 1e10; bytes = bytes * 4 + 64) {
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
