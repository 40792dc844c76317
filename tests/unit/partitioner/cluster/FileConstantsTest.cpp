// The list of a cluster's numbers: each one is a number of the file, and no other one changes with it.
#include "partitioner/cluster/FileConstants.h"

#include <catch2/catch.hpp>
#include <set>

using namespace cleave::partitioner;

namespace {

const std::string devices = "name = \"all forms\"\n"
                            "[devices.gpu]\nbackend = \"cuda\"\nmemory_gib = 40.0\nmemory_gb_per_s = 1555.0\n"
                            "peak_tflops = { fp32 = 19.5, tf32 = 156.0, fp16 = 312.0, bf16 = 312.0 }\n"
                            "[devices.core]\nbackend = \"cpu\"\nmemory_gib = 4.0\nmemory_gb_per_s = 10.0\n"
                            "peak_tflops = { fp32 = 0.1 }\ncache = { mib = 2.0, gb_per_s = 40.0 }\n";
const std::string nodes =
    "[[nodes]]\ndevices = { gpu = 4 }\ninside = { gb_per_s = 130.0, latency_us = 3.0, pair_gb_per_s = 50 }\n"
    "[[nodes]]\ndevices = { core = 8 }\ninside = { gb_per_s = 2.5, latency_us = 1.0, group_gb_per_s = [10.0, 4] }\n"
    "[[nodes]]\ndevices = { gpu = 3 }\n[nodes.inside]\nlatency_us = 2.0\n"
    "link_gb_per_s = { NV = 25.0, SYS = 9.0 }\nlinks = [\"X NV1 SYS\", \"NV1 X NV2\", \"SYS NV2 X\"]\n"
    "[network]\ngb_per_s_per_node = 25.0\nlatency_us = 5.0\n";

} // namespace

TEST_CASE("each constant is one number of the cluster file") {
  const Cluster cluster = Cluster::parse(devices + nodes, "c.toml");
  const std::vector<FileConstant> all = constantsOf(cluster);
  CHECK(all.size() == 4 + 1 + 1 + 1 + 1 + 3 + 4 + 3 + 2);
  std::set<std::string> names, families;
  for (const FileConstant &one : all) {
    INFO(one.name);
    CHECK(names.insert(one.name).second);
    families.insert(one.family);
    Cluster changed = cluster;
    one.set(changed, one.value * 1.5);
    CHECK(Cluster::parse(changed.toToml(), "changed.toml") == changed);
    const std::vector<FileConstant> after = constantsOf(changed);
    REQUIRE(after.size() == all.size());
    for (size_t i = 0; i < all.size(); ++i)
      CHECK(after[i].value == (all[i].name == one.name ? 1.5 : 1) * all[i].value);
    one.set(changed, one.value);
    CHECK(changed == cluster);
  }
  CHECK(families ==
        std::set<std::string>{"devices.gpu.peak_tflops", "devices.gpu.memory_gb_per_s", "devices.core.peak_tflops",
                              "devices.core.memory_gb_per_s", "devices.core.cache.gb_per_s", "nodes.inside.gb_per_s",
                              "nodes.inside.latency_us", "network.gb_per_s_per_node", "network.latency_us"});
  CHECK(names.contains("devices.gpu.peak_tflops.bf16"));
  CHECK(names.contains("nodes.1.inside.group_gb_per_s.0"));
  CHECK(names.contains("nodes.2.inside.link_gb_per_s.SYS"));
}
