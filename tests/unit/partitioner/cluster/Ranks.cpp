// Links between ranks, and one cluster from the measurements of several machines.
#include "partitioner/cluster/MeasureRanks.h"
#include "runtime/comm/LocalWorld.h"

#include <catch2/catch.hpp>

using namespace cleave;
using namespace cleave::partitioner;

namespace {

MeasuredHost host(double memoryGbPerS, int cores, std::optional<Link> inside, std::vector<double> groups = {}) {
  Cluster c;
  c.name = "host";
  c.devices.push_back({.name = "core", .backend = "cpu", .memoryGib = 8, .memoryGbPerS = memoryGbPerS});
  c.devices[0].peakTflops[0] = 0.1;
  c.devices[0].cache = Cache{4, 3 * memoryGbPerS};
  c.nodes.push_back({1, {{0, cores}}, Link{20, 0.5}});
  return {c, inside, groups};
}

} // namespace

TEST_CASE("one machine keeps its name; the link of its ranks replaces that of threads") {
  const Cluster c = joinHosts({host(20, 4, Link{8, 2})}, std::nullopt);
  CHECK(c.name == "host");
  CHECK(c.nodes[0].inside == Link{8, 2});
  CHECK_FALSE(c.network);
  CHECK(joinHosts({host(20, 4, std::nullopt)}, std::nullopt).nodes[0].inside == Link{20, 0.5});
}

TEST_CASE("machines that measure nearly the same are one group with the lowest values") {
  const Cluster c =
      joinHosts({host(20, 4, Link{8, 2}), host(18, 4, Link{9, 3}), host(60, 4, Link{8, 2}), host(20, 8, Link{8, 2})},
                Link{1.2, 30});
  CHECK(c.name == "4 hosts");
  CHECK(c.network == Link{1.2, 30});
  REQUIRE(c.nodes.size() == 3);
  CHECK(c.nodes[0].count == 2);
  CHECK(c.nodes[0].inside == Link{8, 3});
  CHECK(c.devices[0].memoryGbPerS == 18);
  CHECK(c.devices[0].cache == Cache{4, 54});
  CHECK(c.devices[1].name == "core-2");
  CHECK(c.devices[1].memoryGbPerS == 60);
  CHECK(c.nodes[2].devices[0].count == 8);
  CHECK(c.deviceCount() == 20);
  CHECK(Cluster::parse(c.toToml(), "again.toml") == c);
}

TEST_CASE("machines with as many ranks are one group with the lowest rates of their groups") {
  const Cluster c = joinHosts({host(20, 8, Link{3, 2}, {9, 5}), host(20, 8, Link{4, 2}, {8, 6}),
                               host(20, 8, Link{4, 2}, {8}), host(20, 8, Link{4, 2})},
                              Link{1.2, 30});
  REQUIRE(c.nodes.size() == 3);
  CHECK(c.nodes[0].count == 2);
  CHECK(c.nodes[0].inside == Link{3, 2});
  CHECK(c.nodes[0].wiring->groupGbPerS == std::vector<double>{8, 5});
  CHECK(c.nodes[1].wiring->groupGbPerS == std::vector<double>{8});
  CHECK_FALSE(c.nodes[2].wiring);
  CHECK(Cluster::parse(c.toToml(), "again.toml") == c);
}

TEST_CASE("a ring is measured by all of its ranks") {
  LocalWorld world(4);
  double rates[4] = {};
  runRanks(world, [&](unsigned rank) {
    const std::vector<unsigned> ring{3, 0, 2};
    if (rank != 1)
      rates[rank] = measureRing(world[rank], ring);
    world[rank].detach();
  });
  for (const unsigned rank : {0u, 2u, 3u})
    CHECK(rates[rank] > 0);
}

TEST_CASE("a link is measured by both of its ranks") {
  LocalWorld world(3);
  Link links[3];
  runRanks(world, [&](unsigned rank) {
    if (rank != 1)
      links[rank] = measureLink(world[rank], 2 - rank);
    world[rank].detach();
  });
  for (const unsigned rank : {0u, 2u}) {
    CHECK(links[rank].gbPerS > 0);
    CHECK(links[rank].latencyUs > 0);
    CHECK(links[rank].latencyUs < 1e6);
  }
}
