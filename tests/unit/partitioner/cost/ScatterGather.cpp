// The size in bytes from which sending slices pays off, against explicit numbers.
#include "partitioner/cost/ScatterGather.h"

#include <catch2/catch.hpp>

using namespace cleave::partitioner;

namespace {

/// Two nodes of 4 devices: 100 GB/s and 2 us inside, 20 GB/s per node between them.
Cluster twoNodes(double networkGbPerS = 20) {
  Cluster cluster;
  cluster.name = "two";
  cluster.devices = {{.name = "d", .backend = "cuda", .memoryGib = 80, .memoryGbPerS = 2000}};
  cluster.nodes = {{.count = 2, .devices = {{0, 4}}, .inside = Link{100, 2}}};
  cluster.network = Link{networkGbPerS, 10};
  return cluster;
}

} // namespace

TEST_CASE("slices pay where the network is slower than a node's links") {
  // 4 senders share 20 GB/s: 1/5e9 - 1/100e9 = 0.19 ns per byte, of which 3/4 are saved; the ring takes 3 * 2 us.
  CHECK(scatterGatherBytes(twoNodes(), 1, 4, 2) == 42106);
  // 2 senders on each node, in groups of 2: 1/10e9 - 1/100e9 = 0.09 ns, of which half is saved; one step of 2 us.
  CHECK(scatterGatherBytes(twoNodes(), 1, 2, 4) == 44445);
}

TEST_CASE("slices do not pay inside a node, over a fast network, or where a group lies on two nodes") {
  CHECK(scatterGatherBytes(twoNodes(), 1, 2, 2) == 0);
  CHECK(scatterGatherBytes(twoNodes(1000), 1, 4, 2) == 0);
  CHECK(scatterGatherBytes(twoNodes(), 1, 1, 8) == 0);
  CHECK(scatterGatherBytes(twoNodes(), 1, 8, 1) == 0);
  CHECK_THROWS(scatterGatherBytes(twoNodes(), 2, 4, 2));
  Cluster small = twoNodes();
  small.nodes[0].devices[0].count = 3;
  CHECK(scatterGatherBytes(small, 1, 2, 3) == 0);
}
