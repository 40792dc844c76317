// The size in bytes from which sending slices pays off, against explicit numbers.
#include "partitioner/cost/ScatterGather.h"

#include <catch2/catch.hpp>

using namespace cleave;
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

int64_t scatterGatherBytes(const Cluster &cluster, int64_t dp, int64_t tp, int64_t pp,
                           std::array<AxisRole, axisRoles> order = {AxisRole::Pipeline, AxisRole::Data,
                                                                    AxisRole::Tensor}) {
  return partitioner::scatterGatherBytes(cluster, {{{"dp", dp}, {"tp", tp}, {"pp", pp}}, orderBy(order)});
}

} // namespace

TEST_CASE("slices pay where the network is slower than a node's links") {
  // 4 senders share 20 GB/s: 1/5e9 - 1/100e9 = 0.19 ns per byte, of which 3/4 are saved; the ring takes 3 * 2 us.
  CHECK(scatterGatherBytes(twoNodes(), 1, 4, 2) == 42106);
  // 2 senders on each node, in groups of 2: 1/10e9 - 1/100e9 = 0.09 ns, of which half is saved; one step of 2 us.
  CHECK(scatterGatherBytes(twoNodes(), 1, 2, 4) == 44445);
}

TEST_CASE("slices do not pay where the order of axes puts a tp group on two nodes, or a pipeline into one") {
  CHECK(scatterGatherBytes(twoNodes(), 1, 4, 2, {AxisRole::Tensor, AxisRole::Pipeline, AxisRole::Data}) == 0);
  CHECK(scatterGatherBytes(twoNodes(), 2, 2, 2) > 0);
  CHECK(scatterGatherBytes(twoNodes(), 2, 2, 2, {AxisRole::Data, AxisRole::Pipeline, AxisRole::Tensor}) == 0);
}

TEST_CASE("slices are gathered over the links of a tp group") {
  Cluster pairs = twoNodes();
  pairs.nodes[0].wiring = Wiring{.pairGbPerS = 12};
  // Pairs of 12 GB/s instead of the node's 100: 1/10e9 - 1/12e9 = 0.0167 ns per byte, of which half is saved.
  CHECK(scatterGatherBytes(pairs, 1, 2, 4) == 240000);
  CHECK(scatterGatherBytes(pairs, 1, 4, 2) > scatterGatherBytes(twoNodes(), 1, 4, 2));
  pairs.nodes[0].wiring->pairGbPerS = 8; // slower than the network
  CHECK(scatterGatherBytes(pairs, 1, 2, 4) == 0);
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
