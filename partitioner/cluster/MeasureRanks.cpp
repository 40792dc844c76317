// Measures links by ping-pong between ranks, and joins the measurements of all machines to one cluster.
#include "partitioner/cluster/MeasureRanks.h"

#include "partitioner/cluster/MeasureHost.h"
#include "runtime/base/Error.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
#include <map>

namespace cleave::partitioner {

namespace {

using Clock = std::chrono::steady_clock;

std::vector<uint8_t> bytesOf(const std::string &text) { return {text.begin(), text.end()}; }
std::string textOf(const std::vector<uint8_t> &bytes) { return {bytes.begin(), bytes.end()}; }

/// The boot id that Linux draws when it starts: equal for the processes of one machine, different on other machines.
std::string machine() {
  std::ifstream in("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(in, id);
  return id;
}

/// The best mean of half a round trip, in seconds; the rank with the lower number sends first.
double halfRoundTrip(World &world, unsigned peer, size_t bytes, int rounds, int batches) {
  std::vector<std::byte> data(bytes);
  const bool begins = world.rank() < peer;
  const auto send = [&] {
    world.send(data.data(), bytes, peer, 0, 0);
    world.waitSend(0, 0);
  };
  const auto receive = [&] { world.recv(data.data(), bytes, peer, 0, 0); };
  double best = INFINITY;
  for (int batch = 0; batch < batches; ++batch) {
    const auto begin = Clock::now();
    for (int i = 0; i < rounds; ++i) {
      begins ? send() : receive();
      begins ? receive() : send();
    }
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count() / (2 * rounds));
  }
  return best;
}

/// The ranks of each machine, in the order of their first ranks; the same on all ranks.
std::vector<std::vector<unsigned>> ranksByMachine(World &world) {
  std::string list;
  const auto names = world.gather(bytesOf(machine()));
  std::map<std::string, size_t> numbers;
  for (const auto &name : names)
    list += fmt::format("{} ", numbers.try_emplace(textOf(name), numbers.size()).first->second);
  auto bytes = bytesOf(list);
  world.broadcast(bytes);
  std::vector<std::vector<unsigned>> machines;
  const std::string text = textOf(bytes);
  const char *at = text.c_str();
  for (unsigned rank = 0; rank < world.size(); ++rank) {
    char *end = nullptr;
    const size_t number = std::strtoul(at, &end, 10);
    at = end;
    machines.resize(std::max(machines.size(), number + 1));
    machines[number].push_back(rank);
  }
  return machines;
}

Link slower(const Link &a, const Link &b) { return {std::min(a.gbPerS, b.gbPerS), std::max(a.latencyUs, b.latencyUs)}; }

bool near(double a, double b) { return std::abs(a - b) <= 0.2 * std::max(a, b); }

bool alike(const DeviceKind &a, const DeviceKind &b) {
  return near(a.memoryGib, b.memoryGib) && near(a.memoryGbPerS, b.memoryGbPerS) &&
         near(a.peakTflops[0], b.peakTflops[0]) && a.cache.has_value() == b.cache.has_value() &&
         (!a.cache || near(a.cache->mib, b.cache->mib));
}

DeviceKind lowest(DeviceKind a, const DeviceKind &b) {
  a.memoryGib = std::min(a.memoryGib, b.memoryGib);
  a.memoryGbPerS = std::min(a.memoryGbPerS, b.memoryGbPerS);
  a.peakTflops[0] = std::min(a.peakTflops[0], b.peakTflops[0]);
  if (a.cache)
    a.cache = Cache{std::min(a.cache->mib, b.cache->mib), std::min(a.cache->gbPerS, b.cache->gbPerS)};
  return a;
}

} // namespace

Link measureLink(World &world, unsigned peer) {
  constexpr size_t large = size_t{8} << 20;
  halfRoundTrip(world, peer, 8, 100, 1); // warm-up: makes connections, raises clocks
  const double latency = halfRoundTrip(world, peer, 8, 200, 6), whole = halfRoundTrip(world, peer, large, 4, 6);
  return {rounded(large / std::max(whole - latency, whole / 2) / 1e9), rounded(latency * 1e6)};
}

Cluster joinHosts(const std::vector<MeasuredHost> &hosts, const std::optional<Link> &network) {
  Cluster joined;
  joined.name = hosts.size() == 1 ? hosts[0].cluster.name : fmt::format("{} hosts", hosts.size());
  if (hosts.size() > 1)
    joined.network = network;
  for (const MeasuredHost &host : hosts) {
    NodeGroup node = host.cluster.nodes.at(0);
    if (host.inside)
      node.inside = host.inside;
    const DeviceKind &kind = host.cluster.devices.at(0);
    const auto same = std::ranges::find_if(joined.nodes, [&](const NodeGroup &group) {
      return group.devicesPerNode() == node.devicesPerNode() && group.inside.has_value() == node.inside.has_value() &&
             alike(joined.devices[group.devices[0].kind], kind);
    });
    if (same != joined.nodes.end()) {
      ++same->count;
      if (same->inside)
        same->inside = slower(*same->inside, *node.inside);
      DeviceKind &known = joined.devices[same->devices[0].kind];
      known = lowest(known, kind);
      continue;
    }
    node.devices[0].kind = joined.devices.size();
    joined.devices.push_back(kind);
    if (joined.devices.size() > 1)
      joined.devices.back().name += fmt::format("-{}", joined.devices.size());
    joined.nodes.push_back(node);
  }
  return joined;
}

std::optional<Cluster> measureRanks(World &world) {
  const auto machines = ranksByMachine(world);
  std::string measured; // on a machine's first rank: links inside and to rank 0 (0: none), and its cluster file
  Link inside, network;
  std::string own;
  for (const auto &ranks : machines)
    if (world.rank() == ranks[0])
      own = measureHost().toToml();
  world.barrier();
  for (const auto &ranks : machines) {
    if (ranks.size() > 1 && (world.rank() == ranks[0] || world.rank() == ranks[1]))
      inside = measureLink(world, ranks[world.rank() == ranks[0] ? 1 : 0]);
    world.barrier();
    if (ranks[0] != 0 && (world.rank() == 0 || world.rank() == ranks[0]))
      network = measureLink(world, world.rank() == 0 ? ranks[0] : 0);
    world.barrier();
  }
  if (!own.empty())
    measured = fmt::format("{} {} {} {}\n{}", inside.gbPerS, inside.latencyUs, network.gbPerS, network.latencyUs, own);
  const auto all = world.gather(bytesOf(measured));
  if (world.rank() != 0)
    return std::nullopt;
  std::vector<MeasuredHost> hosts;
  std::optional<Link> slowest;
  for (const auto &ranks : machines) {
    const std::string text = textOf(all[ranks[0]]);
    Link within, outside;
    std::sscanf(text.c_str(), "%lf %lf %lf %lf", &within.gbPerS, &within.latencyUs, &outside.gbPerS,
                &outside.latencyUs);
    const std::string file = text.substr(std::min(text.find('\n'), text.size()));
    hosts.push_back({Cluster::parse(file, fmt::format("what rank {} measured", ranks[0])), std::nullopt});
    if (ranks.size() > 1)
      hosts.back().inside = within;
    if (ranks[0] != 0)
      slowest = slowest ? slower(*slowest, outside) : outside;
  }
  return joinHosts(hosts, slowest);
}

} // namespace cleave::partitioner
