// Cluster files: their meaning, errors and their messages, and that a written file reads back.
#include "partitioner/cluster/Cluster.h"
#include "runtime/base/Error.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <string>

using namespace cleave;
using namespace cleave::partitioner;

namespace {

const std::string two = R"(name = "two"
[devices.v100-16g]
backend = "cuda"
memory_gib = 16.0
memory_gb_per_s = 900
peak_tflops = { fp32 = 15.7, fp16 = 125.0 }
[devices.a100-80g]
backend = "cuda"
memory_gib = 80.0
memory_gb_per_s = 2039.0
peak_tflops = { fp32 = 19.5, fp16 = 312.0 }
[[nodes]]
count = 2
devices = { v100-16g = 4 }
inside = { gb_per_s = 130.0, latency_us = 3.0 }
[[nodes]]
devices = { v100-16g = 1, a100-80g = 2 }
inside = { gb_per_s = 300.0, latency_us = 2.5 }
[network]
gb_per_s_per_node = 12.5
latency_us = 5.0
)";

std::string replaced(std::string text, const std::string &from, const std::string &to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

/// The message of the error for this file.
std::string refused(const std::string &text) {
  try {
    Cluster::parse(text, "c.toml");
  } catch (const Error &error) {
    CHECK(error.status == Status::User);
    return error.what();
  }
  FAIL("accepted:\n" << text);
  return "";
}

/// A DGX-1V: two squares of V100s with one or two links between neighbours, as `nvidia-smi topo -m` prints them.
const std::string dgx1v = R"([devices.v100-16g]
backend = "cuda"
memory_gib = 16.0
memory_gb_per_s = 900
peak_tflops = { fp32 = 15.7 }
[[nodes]]
devices = { v100-16g = 8 }
[nodes.inside]
latency_us = 3.0
link_gb_per_s = { NV = 25.0, SYS = 9.0 }
links = [
  "X    NV1  NV1  NV2  NV2  SYS  SYS  SYS",
  "NV1  X    NV2  NV1  SYS  NV2  SYS  SYS",
  "NV1  NV2  X    NV2  SYS  SYS  NV1  SYS",
  "NV2  NV1  NV2  X    SYS  SYS  SYS  NV1",
  "NV2  SYS  SYS  SYS  X    NV1  NV1  NV2",
  "SYS  NV2  SYS  SYS  NV1  X    NV2  NV1",
  "SYS  SYS  NV1  SYS  NV1  NV2  X    NV2",
  "SYS  SYS  SYS  NV1  NV2  NV1  NV2  X",
]
)";

double ringRate(const Cluster &cluster, std::vector<uint32_t> members) {
  return cluster.nodes[0].rings(members).gbPerS;
}

} // namespace

TEST_CASE("a cluster file is read in the units of the file") {
  const Cluster c = Cluster::parse(two, "c.toml");
  CHECK(c.name == "two");
  REQUIRE(c.devices.size() == 2);
  CHECK(c.devices[0].name == "v100-16g"); // in the order of the file
  CHECK(c.devices[0].memoryBytes() == 16.0 * 1024 * 1024 * 1024);
  CHECK(c.devices[0].memoryBytesPerSecond() == 900e9);
  CHECK(c.devices[1].peak(Rate::Fp16) == 312e12);
  CHECK_FALSE(c.devices[1].has(Rate::Bf16));
  REQUIRE(c.nodes.size() == 2);
  CHECK(c.nodes[1].count == 1);
  CHECK(c.nodes[0].inside->latency() == Approx(3e-6));
  CHECK(c.network->bytesPerSecond() == 12.5e9);
  CHECK(c.deviceCount() == 11);
}

TEST_CASE("devices are numbered node by node in the order of the file") {
  const Cluster c = Cluster::parse(two, "c.toml");
  const auto places = c.places(11);
  REQUIRE(places.size() == 11);
  CHECK(places[3] == Cluster::Place{0, 0, 0, 3});
  CHECK(places[4] == Cluster::Place{0, 0, 1, 0});
  CHECK(places[8] == Cluster::Place{0, 1, 2, 0});
  CHECK(places[9] == Cluster::Place{1, 1, 2, 1});
  CHECK_THROWS_WITH(c.places(12), "the plan has 12 ranks, cluster two has 11 devices; every rank needs one");
}

TEST_CASE("a cluster is written so that it reads back as the same") {
  const Cluster c = Cluster::parse(two, "c.toml");
  CHECK(Cluster::parse(c.toToml(), "again.toml") == c);
  Cluster odd = c;
  odd.name = "a \"b\"\n";
  odd.devices[0].name = "x y";
  odd.nodes[0].inside->gbPerS = 1e12;
  odd.nodes[0].inside->latencyUs = 0;
  odd.devices[0].peakTflops[0] = 0.1234567890123456;
  odd.devices[0].fusedAttention = true;
  odd.devices[1].fusedAttention = false;
  odd.devices[1].cache = Cache{40, 4500.5};
  for (size_t i = 0; i < constantCount; ++i)
    odd.devices[0].constants[i] = 0.25 * double(i + 1);
  odd.devices[1].constants[0] = 1.5;
  CHECK(Cluster::parse(odd.toToml(), "again.toml") == odd);
}

TEST_CASE("a group of a DGX-1V gets what its own NVLinks carry") {
  const Cluster c = Cluster::parse(dgx1v, "c.toml");
  CHECK(ringRate(c, {0, 1, 2, 3, 4, 5, 6, 7}) == 150); // six links of each device
  CHECK(c.nodes[0].inside == Link{150, 3});
  CHECK(ringRate(c, {0, 1, 2, 3}) == 100);
  CHECK(ringRate(c, {0, 1, 2}) == 50); // one ring, in both directions
  CHECK(ringRate(c, {0, 1}) == 25);
  CHECK(ringRate(c, {0, 3}) == 50);
  CHECK(ringRate(c, {0, 7}) == 9);
  CHECK(ringRate(c, {0, 1, 6}) == 9);
  CHECK(c.nodes[0].pairGbPerS(2, 1) == 50);
  CHECK(c.nodes[0].pairGbPerS(5, 2) == 9);
  CHECK(Cluster::parse(c.toToml(), "again.toml") == c);
}

TEST_CASE("rings of a group use each link for one ring and direction at most") {
  const Cluster c = Cluster::parse(dgx1v, "c.toml");
  for (uint32_t set = 3; set < 256; ++set) {
    std::vector<uint32_t> members;
    for (uint32_t d = 0; d < 8; ++d)
      if (set & 1u << d)
        members.push_back(d);
    if (members.size() < 2)
      continue;
    const GroupRings rings = c.nodes[0].rings(members);
    CHECK(rings.gbPerS > 0);
    std::map<uint32_t, double> sent, received;
    for (const RingHop &hop : rings.hops) {
      CHECK(hop.share > 0);
      CHECK(hop.share <= 1);
      sent[hop.from] += hop.share * c.nodes[0].pairGbPerS(hop.from, hop.to);
      received[hop.to] += hop.share * c.nodes[0].pairGbPerS(hop.from, hop.to);
    }
    for (const uint32_t member : members) {
      CHECK(sent[member] == Approx(rings.gbPerS));
      CHECK(received[member] == Approx(rings.gbPerS));
    }
    CHECK(rings.nvlink == std::ranges::all_of(rings.hops, &RingHop::nvlink));
  }
}

TEST_CASE("sixteen devices on one switch of PCIe, and as many with many rings, take little time to search") {
  Wiring wiring;
  wiring.wireGbPerS = {0, 25, 10};
  wiring.matrix.assign(16, std::vector<Wire>(16, Wire{WireKind::Pix}));
  std::vector<uint32_t> all;
  for (uint32_t d = 0; d < 16; ++d)
    wiring.matrix[d][d] = {}, all.push_back(d);
  CHECK(ringsOver(wiring, all).gbPerS == 10);
  CHECK_FALSE(ringsOver(wiring, all).nvlink);
  for (auto &row : wiring.matrix)
    for (Wire &wire : row)
      if (wire.kind != WireKind::Self)
        wire.kind = WireKind::Nvlink;
  const double most = 14 * 25; // 15 links of each device: 7 rings in both directions
  CHECK(ringsOver(wiring, all).gbPerS <= most);
  CHECK(ringsOver(wiring, all).gbPerS >= most / 2);
}

TEST_CASE("the rate of a pair, or of groups by size") {
  const std::string pair = "inside = { gb_per_s = 130.0, latency_us = 3.0, pair_gb_per_s = 50 }",
                    groups = "inside = { gb_per_s = 2.5, latency_us = 3.0, group_gb_per_s = [10.0, 4] }",
                    usual = "inside = { gb_per_s = 130.0, latency_us = 3.0 }";
  Cluster c = Cluster::parse(two, "c.toml"); // a switch: a pair has all of it
  CHECK(ringRate(c, {0, 1}) == 130);
  CHECK(c.nodes[0].pairGbPerS(0, 1) == 130);
  c = Cluster::parse(replaced(two, usual, pair), "c.toml");
  CHECK(ringRate(c, {0, 1}) == 50);
  CHECK(ringRate(c, {0, 1, 2}) == 100);
  CHECK(ringRate(c, {0, 1, 2, 3}) == 130);
  CHECK(Cluster::parse(c.toToml(), "again.toml") == c);
  c = Cluster::parse(replaced(two, usual, groups), "c.toml");
  CHECK(c.nodes[0].pairGbPerS(0, 1) == 10);
  CHECK(ringRate(c, {0, 1}) == 10);
  CHECK(ringRate(c, {0, 1, 2}) == 4);
  CHECK(ringRate(c, {0, 1, 2, 3}) == 4);
  CHECK(ringRate(c, {0, 1, 2, 3, 4}) == 2.5);
  CHECK(Cluster::parse(c.toToml(), "again.toml") == c);
}

TEST_CASE("bad links of a node are refused with line, rule and value") {
  const auto row = [](const std::string &from, const std::string &to) { return refused(replaced(dgx1v, from, to)); };
  CHECK(row("SYS  SYS  SYS  NV1  NV2  NV1  NV2  X", "SYS  SYS  SYS  NV2  NV2  NV1  NV2  X") ==
        "c.toml:19:3: nodes.inside.links must be symmetric; device 7 has NV2 to device 3, which has NV1");
  CHECK(row("NV1  X    NV2", "NV1  NV2  X  ") ==
        "c.toml:13:3: nodes.inside.links has X exactly where a device meets itself; device 1 has NV2 to device 1");
  CHECK(row("NV1  X    NV2", "NV1  X NV2 NV2") ==
        "c.toml:13:3: row 1 of nodes.inside.links has 9 links, the node has 8 devices");
  CHECK(row("  \"SYS  SYS  SYS  NV1  NV2  NV1  NV2  X\",\n", "") ==
        "c.toml:11:9: nodes.inside.links has 7 rows, the node has 8 devices");
  CHECK(row("NV2  SYS  SYS  SYS\"", "NVL2  SYS  SYS  SYS\"") ==
        "c.toml:12:3: nodes.inside.links has X, NV1 to NV18, PIX, PXB, PHB, NODE and SYS, not \"NVL2\"");
  CHECK(row("NV2  SYS  SYS  SYS\"", "NV19  SYS  SYS  SYS\"").ends_with("not \"NV19\""));
  CHECK(row("NV1  NV1  NV2  NV2  SYS", "NV6  NV6  NV6  NV6  SYS") ==
        "c.toml:12:3: a device has at most 18 NVLinks, device 0 of nodes.inside.links has 24; where a switch connects "
        "all devices, give gb_per_s instead");
  CHECK(row("{ NV = 25.0, SYS = 9.0 }", "{ NV = 25.0 }") ==
        "c.toml:10:17: nodes.inside.link_gb_per_s needs SYS, which nodes.inside.links has");
  CHECK(row("{ NV = 25.0, SYS = 9.0 }", "{ NV = 25.0, SYS = -9 }") ==
        "c.toml:10:36: nodes.inside.link_gb_per_s.SYS must be at least 1e-6 and at most 1e12, it is -9");
  CHECK(row("{ NV = 25.0, SYS = 9.0 }", "{ NV = 25.0, PCI = 9.0 }") ==
        "c.toml:10:36: nodes.inside.link_gb_per_s has NV, PIX, PXB, PHB, NODE, SYS, not \"PCI\"");
  CHECK(row("link_gb_per_s = { NV = 25.0, SYS = 9.0 }\n", "") == "c.toml:8:1: nodes.inside needs link_gb_per_s");
  CHECK(row("latency_us = 3.0", "latency_us = 3.0\ngb_per_s = 130.0") ==
        "c.toml:10:12: nodes.inside has gb_per_s or links, not both");
  CHECK(row("{ v100-16g = 8 }", "{ v100-16g = 17 }") ==
        "c.toml:11:9: nodes.inside.links is for nodes with 2 to 16 devices, this one has 17");
  const auto inside = [](const std::string &keys) {
    return refused(replaced(two, "gb_per_s = 130.0, latency_us = 3.0", keys));
  };
  CHECK(inside("gb_per_s = 1.0, latency_us = 3.0, link_gb_per_s = { NV = 25.0 }") ==
        "c.toml:15:62: nodes.inside.link_gb_per_s is for links, which the table lacks");
  CHECK(inside("gb_per_s = 1.0, latency_us = 3.0, pair_gb_per_s = 0") ==
        "c.toml:15:62: nodes.inside.pair_gb_per_s must be at least 1e-6 and at most 1e12, it is 0");
  CHECK(inside("latency_us = 3.0, pair_gb_per_s = 1") == "c.toml:15:10: nodes.inside needs gb_per_s");
  CHECK(inside("gb_per_s = 1.0, latency_us = 3.0, pair_gb_per_s = 1, group_gb_per_s = [2]") ==
        "c.toml:15:82: nodes.inside has pair_gb_per_s or group_gb_per_s, not both");
  CHECK(inside("gb_per_s = 1.0, latency_us = 3.0, group_gb_per_s = 2") ==
        "c.toml:15:63: nodes.inside.group_gb_per_s must be an array of the rates of groups of 2, 4, 8, ... devices");
  CHECK(inside("gb_per_s = 1.0, latency_us = 3.0, group_gb_per_s = [2, \"x\"]") ==
        "c.toml:15:67: nodes.inside.group_gb_per_s must be a number");
}

TEST_CASE("a file without a name is called after itself") {
  CHECK(Cluster::parse(replaced(two, "name = \"two\"\n", ""), "c.toml").name == "c.toml");
}

TEST_CASE("bad cluster files are refused with line, rule and value") {
  CHECK(refused("") == "c.toml: a cluster needs devices: a table [devices.NAME] for every kind");
  CHECK(refused("devices = {}\n") == "c.toml:1:11: devices is empty; a cluster needs at least one kind");
  CHECK(refused(replaced(two, "gb_per_s = 130.0", "gb_per_s = -130.0")) ==
        "c.toml:15:23: nodes.inside.gb_per_s must be at least 1e-6 and at most 1e12, it is -130");
  CHECK(refused(replaced(two, "gb_per_s = 130.0", "gb_per_s = 0")) ==
        "c.toml:15:23: nodes.inside.gb_per_s must be at least 1e-6 and at most 1e12, it is 0");
  CHECK(refused(replaced(two, "gb_per_s = 130.0", "gb_per_s = 1e-300")) ==
        "c.toml:15:23: nodes.inside.gb_per_s must be at least 1e-6 and at most 1e12, it is 1e-300");
  CHECK(refused(replaced(two, "= 900", "= inf")) ==
        "c.toml:5:19: devices.v100-16g.memory_gb_per_s must be at least 1e-6 and at most 1e12, it is inf");
  CHECK(refused(replaced(two, "= 900", "= nan")) ==
        "c.toml:5:19: devices.v100-16g.memory_gb_per_s must be at least 1e-6 and at most 1e12, it is nan");
  CHECK(refused(replaced(two, "= 900", "= \"900\"")) ==
        "c.toml:5:19: devices.v100-16g.memory_gb_per_s must be a number");
  CHECK(refused(replaced(two, "latency_us = 3.0", "latency_us = -1")) ==
        "c.toml:15:43: nodes.inside.latency_us must be at least 0 and at most 1e12, it is -1");
  CHECK(refused(replaced(two, "count = 2", "count = 0")) ==
        "c.toml:13:9: nodes.count must be between 1 and 1048576, it is 0");
  CHECK(refused(replaced(two, "count = 2", "count = 2.5")) == "c.toml:13:9: nodes.count must be a whole number");
  CHECK(refused(replaced(two, "{ v100-16g = 4 }", "{ v100-16g = -4 }")) ==
        "c.toml:14:24: nodes.devices.v100-16g must be between 1 and 1048576, it is -4");
  CHECK(refused(replaced(two, "{ v100-16g = 4 }", "{ v100-16gb = 4 }")) ==
        "c.toml:14:25: nodes.devices names \"v100-16gb\", which is no device of this cluster: v100-16g, a100-80g; did "
        "you mean v100-16g?");
  CHECK(refused(replaced(two, "{ v100-16g = 4 }", "{}")) ==
        "c.toml:14:11: nodes.devices is empty; a node needs at least one device");
  CHECK(refused(replaced(two, "backend = \"cuda\"", "backend = \"cuba\"")) ==
        "c.toml:3:11: devices.v100-16g.backend must be cpu or cuda, it is \"cuba\"; did you mean cuda?");
  CHECK(refused(replaced(two, "memory_gib = 16.0\n", "")) == "c.toml:2:1: devices.v100-16g needs memory_gib");
  CHECK(refused(replaced(two, "memory_gib = 16.0", "memory_gb = 16.0")) ==
        "c.toml:4:13: devices.v100-16g has backend, memory_gib, memory_gb_per_s, peak_tflops, fused_attention, cache, "
        "constants, not "
        "\"memory_gb\"; did you mean memory_gib?");
  CHECK(refused(replaced(two, "memory_gib = 16.0", "memory_gib = 16.0\nfused_attention = 1")) ==
        "c.toml:5:19: devices.v100-16g.fused_attention must be true or false");
  CHECK(refused(replaced(two, "backend = \"cuda\"", "backend = \"cpu\"\nfused_attention = true")) ==
        "c.toml:4:19: devices.v100-16g.fused_attention is for devices with backend cuda");
  CHECK(refused(replaced(two, "memory_gib = 16.0", "memory_gib = 16.0\ncache = { mib = 6.0 }")) ==
        "c.toml:5:9: devices.v100-16g.cache needs gb_per_s");
  CHECK(refused(replaced(two, "memory_gib = 16.0", "memory_gib = 16.0\ncache = { mib = 0, gb_per_s = 9.0 }")) ==
        "c.toml:5:17: devices.v100-16g.cache.mib must be at least 1e-6 and at most 1e12, it is 0");
  CHECK(refused(replaced(two, "fp32 = 15.7, ", "")) == "c.toml:6:15: devices.v100-16g.peak_tflops needs fp32");
  CHECK(refused(replaced(two, "fp32 = 15.7, ", "fp32 = 15.7, int8 = 1.0, ")).find("not \"int8\"") != std::string::npos);
  CHECK(refused(replaced(two, "[network]\ngb_per_s_per_node = 12.5\nlatency_us = 5.0\n", "")) ==
        "c.toml: a cluster of 3 nodes needs network, the link between them");
  CHECK(refused(replaced(two, "inside = { gb_per_s = 130.0, latency_us = 3.0 }\n", "")) ==
        "c.toml:12:1: nodes with 4 devices need inside, the link between them");
  CHECK(refused("speed = 1\n" + two) == "c.toml:1:9: a cluster has name, devices, nodes, network, not \"speed\"");
  // The TOML parser reports a kind that is defined twice.
  CHECK(refused(replaced(two, "[devices.a100-80g]", "[devices.v100-16g]")).rfind("c.toml:7:", 0) == 0);
}

TEST_CASE("a cluster has at most a million devices") {
  CHECK(refused(replaced(two, "count = 2", "count = 1048576")) ==
        "c.toml:12:1: a cluster has at most 1048576 devices, with this group it has 4194304");
}
