// Lists the numbers of a cluster.
#include "partitioner/cluster/FileConstants.h"

#include <fmt/format.h>
#include <utility>

namespace cleave::partitioner {
namespace {

void addKind(const Cluster &cluster, size_t index, std::vector<FileConstant> &all) {
  const DeviceKind &kind = cluster.devices[index];
  const std::string of = "devices." + kind.name + ".";
  for (size_t rate = 0; rate < rateCount; ++rate)
    if (kind.peakTflops[rate] > 0)
      all.push_back({.name = fmt::format("{}peak_tflops.{}", of, rateName(static_cast<Rate>(rate))),
                     .family = of + "peak_tflops",
                     .value = kind.peakTflops[rate],
                     .set = [=](Cluster &c, double value) { c.devices[index].peakTflops[rate] = value; },
                     .kind = index,
                     .group = {},
                     .peak = true,
                     .dataSheet = true});
  const auto add = [&](const std::string &name, double value, std::function<void(Cluster &, double)> set, bool sheet) {
    all.push_back({.name = of + name,
                   .family = of + name,
                   .value = value,
                   .set = std::move(set),
                   .kind = index,
                   .group = {},
                   .dataSheet = sheet});
  };
  add(
      "memory_gb_per_s", kind.memoryGbPerS, [=](Cluster &c, double value) { c.devices[index].memoryGbPerS = value; },
      true);
  if (kind.cache)
    add(
        "cache.gb_per_s", kind.cache->gbPerS, [=](Cluster &c, double value) { c.devices[index].cache->gbPerS = value; },
        false);
}

void addLinks(const Cluster &cluster, size_t index, std::vector<FileConstant> &all) {
  const NodeGroup &group = cluster.nodes[index];
  if (!group.inside)
    return;
  const std::string of =
      cluster.nodes.size() > 1 ? fmt::format("nodes.{}.inside.", index) : std::string("nodes.inside.");
  const auto add = [&](const std::string &name, double value, std::function<void(Cluster &, double)> set) {
    all.push_back({.name = of + name,
                   .family = std::string("nodes.inside.") + (name == "latency_us" ? "latency_us" : "gb_per_s"),
                   .value = value,
                   .set = std::move(set),
                   .kind = {},
                   .group = index});
  };
  add("latency_us", group.inside->latencyUs,
      [=](Cluster &c, double value) { c.nodes[index].inside->latencyUs = value; });
  if (!group.wiring || group.wiring->matrix.empty())
    add("gb_per_s", group.inside->gbPerS, [=](Cluster &c, double value) { c.nodes[index].inside->gbPerS = value; });
  if (!group.wiring)
    return;
  if (group.wiring->pairGbPerS > 0)
    add("pair_gb_per_s", group.wiring->pairGbPerS,
        [=](Cluster &c, double value) { c.nodes[index].wiring->pairGbPerS = value; });
  for (size_t i = 0; i < group.wiring->groupGbPerS.size(); ++i)
    add(fmt::format("group_gb_per_s.{}", i), group.wiring->groupGbPerS[i],
        [=](Cluster &c, double value) { c.nodes[index].wiring->groupGbPerS[i] = value; });
  for (size_t kind = 0; kind < wireKindCount; ++kind)
    if (group.wiring->wireGbPerS[kind] > 0)
      add(fmt::format("link_gb_per_s.{}", wireNames()[kind]), group.wiring->wireGbPerS[kind],
          [=](Cluster &c, double value) {
            c.nodes[index].wiring->wireGbPerS[kind] = value;
            c.nodes[index].takeRateOfWires();
          });
}

} // namespace

std::vector<FileConstant> constantsOf(const Cluster &cluster) {
  std::vector<FileConstant> all;
  for (size_t kind = 0; kind < cluster.devices.size(); ++kind)
    addKind(cluster, kind, all);
  for (size_t group = 0; group < cluster.nodes.size(); ++group)
    addLinks(cluster, group, all);
  if (!cluster.network)
    return all;
  const auto add = [&](const std::string &name, double value, std::function<void(Cluster &, double)> set) {
    all.push_back({.name = name, .family = name, .value = value, .set = std::move(set), .kind = {}, .group = {}});
  };
  add("network.gb_per_s_per_node", cluster.network->gbPerS,
      [](Cluster &c, double value) { c.network->gbPerS = value; });
  add("network.latency_us", cluster.network->latencyUs, [](Cluster &c, double value) { c.network->latencyUs = value; });
  return all;
}

} // namespace cleave::partitioner
