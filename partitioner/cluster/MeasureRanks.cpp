// Measures links by ping-pong between ranks, and joins the measurements of all machines to one cluster.
#include "partitioner/cluster/MeasureRanks.h"

#include "partitioner/cluster/MeasureHost.h"
#include "runtime/base/Error.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <map>
#include <sstream>

namespace cleave::partitioner {

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t large = size_t{8} << 20; // bytes of a message

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
double halfRoundTrip(RankEndpoint &world, unsigned peer, size_t bytes, int rounds, int batches) {
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
std::vector<std::vector<unsigned>> ranksByMachine(RankEndpoint &world) {
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

/// Lowers the rates of `node` to those of `other`, which has as many.
void lower(NodeGroup &node, const NodeGroup &other) {
  if (!node.inside)
    return;
  *node.inside = slower(*node.inside, *other.inside);
  for (size_t i = 0; node.wiring && i < node.wiring->groupGbPerS.size(); ++i)
    node.wiring->groupGbPerS[i] = std::min(node.wiring->groupGbPerS[i], other.wiring->groupGbPerS[i]);
}

size_t groupRates(const NodeGroup &node) { return node.wiring ? node.wiring->groupGbPerS.size() : 0; }

bool near(double a, double b) { return std::abs(a - b) <= 0.2 * std::max(a, b); }

bool alike(const DeviceKind &a, const DeviceKind &b) {
  return near(a.memoryGib, b.memoryGib) && near(a.memoryGbPerS, b.memoryGbPerS) &&
         std::ranges::equal(a.peakTflops, b.peakTflops, near) && a.cache.has_value() == b.cache.has_value() &&
         (!a.cache || near(a.cache->mib, b.cache->mib));
}

DeviceKind lowest(DeviceKind a, const DeviceKind &b) {
  a.memoryGib = std::min(a.memoryGib, b.memoryGib);
  a.memoryGbPerS = std::min(a.memoryGbPerS, b.memoryGbPerS);
  for (size_t rate = 0; rate < rateCount; ++rate)
    a.peakTflops[rate] = std::min(a.peakTflops[rate], b.peakTflops[rate]);
  if (a.cache)
    a.cache = Cache{std::min(a.cache->mib, b.cache->mib), std::min(a.cache->gbPerS, b.cache->gbPerS)};
  return a;
}

} // namespace

Link measureLink(RankEndpoint &world, unsigned peer) {
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
    if (!host.groups.empty())
      node.wiring = Wiring{.groupGbPerS = host.groups};
    const DeviceKind &kind = host.cluster.devices.at(0);
    const auto same = std::ranges::find_if(joined.nodes, [&](const NodeGroup &group) {
      return group.devicesPerNode() == node.devicesPerNode() && group.inside.has_value() == node.inside.has_value() &&
             groupRates(group) == groupRates(node) && alike(joined.devices[group.devices[0].kind], kind);
    });
    if (same != joined.nodes.end()) {
      ++same->count;
      lower(*same, node);
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

double measureRing(RankEndpoint &world, std::span<const unsigned> ranks) {
  const size_t me = static_cast<size_t>(std::ranges::find(ranks, world.rank()) - ranks.begin());
  const unsigned next = ranks[(me + 1) % ranks.size()], before = ranks[(me + ranks.size() - 1) % ranks.size()];
  std::vector<std::byte> out(large), in(large);
  double best = INFINITY;
  for (int batch = 0; batch < 7; ++batch) { // the first one makes connections
    const auto begin = Clock::now();
    for (int i = 0; i < 4; ++i) {
      world.send(out.data(), large, next, 0, 0);
      world.recv(in.data(), large, before, 0, 0);
      world.waitSend(0, 0);
    }
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count() / 4);
  }
  return rounded(large / best / 1e9);
}

namespace {

/// The numbers of ranks that are measured together on a machine: 2, 4, 8, ..., and all.
std::vector<size_t> groupSizes(size_t ranks) {
  std::vector<size_t> sizes;
  for (size_t size = 2; size < ranks; size *= 2)
    sizes.push_back(size);
  if (ranks > 1)
    sizes.push_back(ranks);
  return sizes;
}

/// What a rank measured: latency inside its machine and the link to rank 0 (0: none), then the rates of the groups of
/// its machine in which it was.
struct RankMeasurement {
  double latencyUs = 0;
  Link network;
  std::vector<double> groups;

  std::string text() const {
    return fmt::format("{} {} {} {}", latencyUs, network.gbPerS, network.latencyUs, fmt::join(groups, " "));
  }
  static RankMeasurement parse(const std::string &text) {
    RankMeasurement read;
    std::istringstream in(text);
    in >> read.latencyUs >> read.network.gbPerS >> read.network.latencyUs;
    for (double rate; in >> rate;)
      read.groups.push_back(rate);
    return read;
  }
};

/// Measures the links of this rank, at the same times as the other ranks measure theirs.
RankMeasurement measureLinks(RankEndpoint &world, const std::vector<std::vector<unsigned>> &machines) {
  RankMeasurement mine;
  size_t most = 0;
  for (const auto &ranks : machines)
    most = std::max(most, groupSizes(ranks.size()).size());
  for (const auto &ranks : machines) {
    const bool here = ranks.size() > 1 && (world.rank() == ranks[0] || world.rank() == ranks[1]);
    if (here)
      mine.latencyUs = measureLink(world, ranks[world.rank() == ranks[0] ? 1 : 0]).latencyUs;
    world.barrier();
    if (ranks[0] != 0 && (world.rank() == 0 || world.rank() == ranks[0]))
      mine.network = measureLink(world, world.rank() == 0 ? ranks[0] : 0);
    world.barrier();
  }
  for (size_t g = 0; g < most; ++g) { // machines do not disturb each other
    for (const auto &ranks : machines) {
      const std::vector<size_t> sizes = groupSizes(ranks.size());
      const std::span<const unsigned> group(ranks.data(), g < sizes.size() ? sizes[g] : 0);
      if (std::ranges::find(group, world.rank()) != group.end())
        mine.groups.push_back(measureRing(world, group));
    }
    world.barrier();
  }
  return mine;
}

/// One machine from what its ranks measured. The slowest rank of a group counts; a rank that was only in larger groups
/// has rates of those alone.
MeasuredHost hostOf(const std::vector<unsigned> &ranks, const std::vector<RankMeasurement> &all, Cluster cluster) {
  MeasuredHost host{std::move(cluster), std::nullopt, {}};
  if (ranks.size() < 2)
    return host;
  host.groups.assign(groupSizes(ranks.size()).size(), INFINITY);
  for (const unsigned rank : ranks) {
    const std::vector<double> &rates = all[rank].groups;
    for (size_t i = 0; i < std::min(rates.size(), host.groups.size()); ++i) {
      double &slowest = host.groups[host.groups.size() - 1 - i];
      slowest = std::min(slowest, rates[rates.size() - 1 - i]);
    }
  }
  host.inside = Link{host.groups.back(), all[ranks[0]].latencyUs};
  host.groups.pop_back();
  return host;
}

} // namespace

std::optional<Cluster> measureRanks(RankEndpoint &world) {
  const auto machines = ranksByMachine(world);
  std::string own; // on a machine's first rank: its cluster file
  for (const auto &ranks : machines)
    if (world.rank() == ranks[0])
      own = measureHost().toToml();
  world.barrier();
  const auto all = world.gather(bytesOf(measureLinks(world, machines).text() + "\n" + own));
  if (world.rank() != 0)
    return std::nullopt;
  std::vector<RankMeasurement> measured;
  for (const auto &bytes : all)
    measured.push_back(RankMeasurement::parse(textOf(bytes).substr(0, textOf(bytes).find('\n'))));
  std::vector<MeasuredHost> hosts;
  std::optional<Link> slowest;
  for (const auto &ranks : machines) {
    const std::string text = textOf(all[ranks[0]]);
    hosts.push_back(hostOf(
        ranks, measured, Cluster::parse(text.substr(text.find('\n')), fmt::format("what rank {} measured", ranks[0]))));
    if (const Link &network = measured[ranks[0]].network; ranks[0] != 0)
      slowest = slowest ? slower(*slowest, network) : network;
  }
  return joinHosts(hosts, slowest);
}

} // namespace cleave::partitioner
