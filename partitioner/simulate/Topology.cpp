// Finds the links between ranks in the cluster.
#include "partitioner/simulate/Topology.h"

#include "partitioner/cost/Nccl.h"
#include "runtime/base/Error.h"
#include "runtime/plan/check/Defects.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <fmt/format.h>

namespace cleave::partitioner {

namespace {

// Numbers of the links of a node.
enum Direction : uint64_t { Out, In };
uint64_t networkLink(Direction way) { return way; }
uint64_t pcieLink(uint32_t device, Direction way) { return 2 + 4 * uint64_t{device} + way; }
uint64_t portLink(uint32_t device, Direction way) { return 4 + 4 * uint64_t{device} + way; }
uint64_t pairLink(uint32_t from, uint32_t to) { return uint64_t{1} << 62 | uint64_t{from} << 31 | to; }

} // namespace

LinkEnds linkEnds(uint64_t link) {
  if (link >> 62)
    return {.kind = LinkKind::Pair,
            .device = static_cast<uint32_t>(link >> 31 & 0x7fffffff),
            .other = static_cast<uint32_t>(link & 0x7fffffff)};
  if (link < 2)
    return {.kind = LinkKind::Network, .in = link == In};
  const auto device = static_cast<uint32_t>((link - 2) / 4);
  return {.kind = (link - 2) % 4 < 2 ? LinkKind::Pcie : LinkKind::Port, .in = link % 2 == In, .device = device};
}

/// The places of chosen devices, with their nodes numbered from 0.
static std::vector<Cluster::Place> placesOf(const Cluster &cluster, std::span<const uint32_t> devices) {
  const std::vector<Cluster::Place> all = cluster.places(static_cast<int64_t>(*std::ranges::max_element(devices)) + 1);
  std::vector<Cluster::Place> chosen;
  std::map<int64_t, int64_t> nodes;
  for (const uint32_t device : devices) {
    chosen.push_back(all[device]);
    chosen.back().node = nodes.try_emplace(all[device].node, static_cast<int64_t>(nodes.size())).first->second;
  }
  return chosen;
}

static std::vector<DeviceConstants> constantsOfKinds(const Cluster &cluster) {
  std::vector<DeviceConstants> kinds;
  for (const DeviceKind &kind : cluster.devices)
    kinds.push_back(constantsOf(kind));
  return kinds;
}

Topology::Topology(const plan::Plan &plan, const Cluster &cluster, std::span<const uint32_t> devices)
    : plan(&plan), cluster(cluster), kinds(constantsOfKinds(cluster)),
      places(devices.empty() ? cluster.places(check::length(plan.ranks())) : placesOf(cluster, devices)) {
  for (uint32_t r = 0; r < places.size(); ++r) {
    const DeviceKind &kind = cluster.devices[places[r].kind];
    if (plan.backend() && kind.backend != plan.backend()->string_view())
      throw userError(fmt::format("the plan is for {}, device {} of cluster {}, on which rank {} lies, is for {}",
                                  plan.backend()->str(), kind.name, cluster.name, r, kind.backend));
  }
}

Topology::Topology(int64_t ranks, const Cluster &cluster, std::span<const uint32_t> devices)
    : cluster(cluster), kinds(constantsOfKinds(cluster)),
      places(devices.empty() ? cluster.places(ranks) : placesOf(cluster, devices)) {}

bool Topology::ordered(size_t nodeGroup) const {
  const NodeGroup &node = cluster.nodes[nodeGroup];
  return node.wiring && !node.wiring->matrix.empty();
}

const Link &Topology::insideOf(uint32_t rank) const {
  if (!nodeOf(rank).inside)
    throw userError(fmt::format("two ranks lie on device {}, which has no link inside its node", rank));
  return *nodeOf(rank).inside;
}

double Topology::insideFraction(std::span<const uint32_t> ranks) const {
  const std::optional<Wiring> &wiring = nodeOf(ranks.front()).wiring;
  double least = INFINITY;
  for (const uint32_t rank : ranks)
    least = std::min(least,
                     wiring && !wiring->matrix.empty() ? constants(rank).wireFraction : constants(rank).insideFraction);
  return least;
}

/// Searched once for equal devices of equal nodes.
const GroupRings &Topology::ringsOf(std::span<const uint32_t> ranks) {
  insideOf(ranks.front());
  std::vector<uint32_t> devices;
  for (const uint32_t rank : ranks)
    devices.push_back(places[rank].device);
  std::sort(devices.begin(), devices.end());
  const auto [found, added] = rings.try_emplace({places[ranks.front()].group, devices});
  if (added)
    found->second = nodeOf(ranks.front()).rings(devices);
  return found->second;
}

double Topology::networkRate(uint32_t rank) const {
  return cluster.network->bytesPerSecond() * constants(rank).networkFraction;
}

double Topology::ownNetworkRate(uint32_t rank) const {
  const DeviceConstants &c = constants(rank);
  return c.deviceNetworkBytesPerSecond * c.networkFraction;
}

GroupLinks Topology::group(uint32_t index) {
  const auto &ranks = *plan->groups()->Get(index)->ranks();
  return group(std::vector<uint32_t>(ranks.begin(), ranks.end()));
}

GroupLinks Topology::group(std::span<const uint32_t> ranks) {
  std::map<int64_t, std::vector<uint32_t>> nodes;
  for (const uint32_t rank : ranks)
    nodes[places[rank].node].push_back(rank);
  GroupLinks links{.members = static_cast<int64_t>(ranks.size()), .nodes = static_cast<int64_t>(nodes.size())};
  double inside = INFINITY, network = INFINITY;
  int capability = INT_MAX;
  for (const auto &[node, members] : nodes) {
    const auto here = static_cast<int64_t>(members.size());
    links.perNode = std::max(links.perNode, here);
    for (const uint32_t rank : members) {
      links.start = std::max(links.start, constants(rank).communicationSeconds);
      capability = std::min(capability, constants(rank).computeCapability);
      if (links.nodes > 1)
        network = std::min({network, networkRate(rank), ownNetworkRate(rank) * static_cast<double>(here)});
    }
    if (here > 1) {
      const GroupRings &found = ringsOf(members);
      inside = std::min(inside, found.gbPerS * 1e9 * insideFraction(members));
      links.insideLatency = std::max(links.insideLatency, insideOf(members.front()).latency());
      links.nvlink &= found.nvlink;
    }
  }
  if (links.nodes > 1)
    links.networkLatency = cluster.network->latency();
  if (capability > 0)
    links.nccl = &ncclTuning(capability);
  links.insideRate = std::isfinite(inside) ? inside : 0;
  links.networkRate = std::isfinite(network) ? network : 0;
  return links;
}

MessageLink Topology::message(uint32_t rank, uint32_t peer) const {
  const DeviceConstants &mine = constants(rank), &others = constants(peer);
  MessageLink link{.start = std::max(mine.communicationSeconds, others.communicationSeconds)};
  if (places[rank].node == places[peer].node) {
    link.latency = insideOf(rank).latency();
    link.rate = nodeOf(rank).pairGbPerS(places[rank].device, places[peer].device) * 1e9 *
                std::min(mine.messageFraction, others.messageFraction);
    return link;
  }
  link.rate = std::min({networkRate(rank), ownNetworkRate(rank), networkRate(peer), ownNetworkRate(peer)});
  link.latency = cluster.network->latency();
  return link;
}

double busRate(const GroupLinks &links) {
  return std::min(links.perNode > 1 ? links.insideRate : INFINITY, links.nodes > 1 ? links.networkRate : INFINITY);
}

std::vector<LinkUse> Topology::uses(const GroupLinks &links, std::span<const uint32_t> members) {
  std::vector<LinkUse> all;
  const auto both = [&](auto link, uint32_t device, double share) {
    all.push_back({link(device, Out), share}), all.push_back({link(device, In), share});
  };
  // Rings have one rate everywhere; the exchanges of hosts may use all of every link.
  if (links.nodes > 1) {
    const double rate = links.nccl ? busRate(links) : links.networkRate;
    for (const Direction way : {Out, In})
      all.push_back({networkLink(way), rate / networkRate(members.front())});
    for (const uint32_t rank : members)
      both(pcieLink, places[rank].device, rate / static_cast<double>(members.size()) / ownNetworkRate(rank));
  }
  if (members.size() < 2)
    return all;
  const GroupRings &found = ringsOf(members);
  const double full = found.gbPerS * 1e9 * insideFraction(members);
  const double part = (links.nccl ? busRate(links) : links.insideRate) / full;
  for (const RingHop &hop : found.hops)
    if (hop.nvlink)
      all.push_back({pairLink(hop.from, hop.to), hop.share * part});
    else
      for (const auto &[device, way] : {std::pair{hop.from, Out}, std::pair{hop.to, In}})
        all.push_back({pcieLink(device, way), hop.share * part});
  if (!found.hops.empty())
    return all;
  const NodeGroup &node = nodeOf(members.front());
  const double pairs = node.wiring ? node.wiring->pairGbPerS * static_cast<double>(members.size() - 1) : 0;
  for (const uint32_t rank : members) {
    both(portLink, places[rank].device, pairs > 0 ? part * found.gbPerS / node.inside->gbPerS : part);
    for (const uint32_t other : members)
      if (pairs > 0 && other != rank)
        all.push_back({pairLink(places[rank].device, places[other].device), part * found.gbPerS / pairs});
  }
  return all;
}

std::vector<LinkUse> Topology::uses(uint32_t from, uint32_t to, bool receiver) const {
  const uint32_t a = places[from].device, b = places[to].device;
  if (places[from].node != places[to].node) {
    const double rate = message(from, to).rate;
    const Direction way = receiver ? In : Out;
    const uint32_t rank = receiver ? to : from;
    return {{networkLink(way), rate / networkRate(rank)},
            {pcieLink(receiver ? b : a, way), rate / ownNetworkRate(rank)}};
  }
  if (receiver)
    return {};
  const NodeGroup &node = nodeOf(from);
  if (node.wiring && !node.wiring->matrix.empty()) {
    if (node.wiring->matrix[a][b].kind == WireKind::Nvlink)
      return {{pairLink(a, b), 1}};
    return {{pcieLink(a, Out), 1}, {pcieLink(b, In), 1}};
  }
  if (!node.wiring || node.wiring->pairGbPerS == 0)
    return {{portLink(a, Out), 1}, {portLink(b, In), 1}};
  const double share = std::min(1.0, node.wiring->pairGbPerS / node.inside->gbPerS);
  return {{pairLink(a, b), 1}, {portLink(a, Out), share}, {portLink(b, In), share}};
}

} // namespace cleave::partitioner
