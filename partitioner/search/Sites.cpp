// Numbers the places of ranks.
#include "partitioner/search/Sites.h"

#include "partitioner/cost/ScatterGather.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <set>

namespace cleave::partitioner {

bool replicasApart(const Mesh &mesh, const Cluster &cluster) {
  if (mesh.size(AxisRole::Tensor) == 1 || mesh.ranks() > cluster.deviceCount())
    return false;
  const std::vector<Cluster::Place> places = cluster.places(mesh.ranks());
  const auto crosses = [&](int64_t rank, AxisRole role) {
    const std::vector<int64_t> first = mesh.with(role, 0, mesh.coords(rank));
    return places[size_t(rank)].node != places[size_t(mesh.rank(first))].node;
  };
  bool apart = false;
  for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
    if (crosses(rank, AxisRole::Tensor))
      return false;
    apart |= crosses(rank, AxisRole::Data);
  }
  return apart;
}

/// Whether the groups of axis tp are next to each other, unlike those of dp.
static bool tensorInside(const Mesh &mesh) {
  const auto isOf = [&](AxisRole role) {
    return [=, &mesh](uint8_t axis) { return axisTable[axis].role == role && mesh.axes[axis].size > 1; };
  };
  const auto first = std::ranges::find_if(mesh.order, isOf(AxisRole::Tensor));
  return std::find_if(first, mesh.order.end(), isOf(AxisRole::Data)) == mesh.order.end();
}

Sites::Sites(const Cluster &cluster, int64_t devices)
    : cluster(cluster), places(cluster.places(devices)), topology(devices, cluster) {
  std::set<size_t> found;
  for (const Cluster::Place &place : places)
    found.insert(place.kind);
  kinds = found.size();
  if (oneKind())
    all.emplace_back(), networkShares.push_back(1);
}

bool Sites::replicasApart(const SplitChoice &split, Site site) const {
  const std::vector<uint32_t> &devices = all[site];
  if (!oneKind() || devices.empty())
    return partitioner::replicasApart(meshByRole(split.data, split.tensor, 1), cluster);
  const auto tensor = static_cast<size_t>(split.tensor);
  bool apart = false;
  for (size_t i = 0; i < devices.size(); ++i) {
    if (places[devices[i]].node != places[devices[i / tensor * tensor]].node)
      return false;
    apart |= places[devices[i]].node != places[devices[i % tensor]].node;
  }
  return apart && tensor > 1;
}

Sites::Positions Sites::devicesOf(const Mesh &mesh) {
  Positions found(static_cast<size_t>(mesh.size(AxisRole::Pipeline)));
  for (int64_t rank = 0; rank < mesh.ranks(); ++rank)
    found[static_cast<size_t>(mesh.coordinate(AxisRole::Pipeline, mesh.coords(rank)))].push_back(
        static_cast<uint32_t>(rank));
  if (!tensorInside(mesh))
    for (std::vector<uint32_t> &own : found)
      std::ranges::stable_sort(own, {}, [&](uint32_t rank) {
        const std::vector<int64_t> at = mesh.coords(rank);
        return std::pair(mesh.coordinate(AxisRole::Data, at), mesh.coordinate(AxisRole::Tensor, at));
      });
  return found;
}

Site Sites::numberOf(std::vector<uint32_t> devices, double networkShare) {
  std::vector<uint64_t> key{std::bit_cast<uint64_t>(networkShare)};
  std::map<int64_t, uint64_t> nodes;
  for (const uint32_t device : devices) {
    const Cluster::Place &place = places[device];
    const auto &wiring = cluster.nodes[place.group].wiring;
    key.insert(key.end(), {place.kind, place.group, nodes.try_emplace(place.node, nodes.size()).first->second,
                           wiring && !wiring->matrix.empty() ? place.device : 0});
  }
  const auto [found, fresh] = numbers.try_emplace(std::move(key), all.size());
  if (fresh)
    all.push_back(std::move(devices)), networkShares.push_back(networkShare);
  return found->second;
}

std::vector<Site> Sites::partsAt(const Mesh &mesh, const std::vector<uint32_t> &devices, int64_t tensor) {
  std::vector<Site> found;
  std::set<size_t> seen;
  for (const uint32_t first : devices)
    if (seen.insert(places[first].kind).second) {
      const std::vector<int64_t> at = mesh.coords(first);
      std::vector<uint32_t> members;
      for (const uint32_t other : devices)
        if (tensor == 1 ? other == first
                        : mesh.coordinate(AxisRole::Data, mesh.coords(other)) == mesh.coordinate(AxisRole::Data, at))
          members.push_back(other);
      found.push_back(numberOf(std::move(members)));
    }
  return found;
}

std::vector<std::vector<int64_t>> Sites::nodesOf(const Mesh &mesh) const {
  std::vector<std::vector<int64_t>> nodes;
  for (const std::vector<uint32_t> &devices : devicesOf(mesh))
    for (auto &own = nodes.emplace_back(); const uint32_t device : devices)
      own.push_back(places[device].node);
  return nodes;
}

/// The part of a link that each of so many positions has that send at the same time. `reach`: the part of its rate that
/// one alone reaches.
static double shareOfLink(double positions, double reach) { return 1 / std::max(1.0, positions * reach); }

/// Of devices of one kind: the position whose ranks lie on the most nodes, for which the others wait.
void Sites::setSpread(Placed &placed, const Mesh &mesh, const Positions &devices) {
  placed.positions = {0};
  const int64_t ranks = mesh.ranks() / mesh.size(AxisRole::Pipeline), perNode = cluster.nodes.front().devicesPerNode();
  if (mesh.order == usualOrder && (ranks % perNode == 0 || perNode % ranks == 0))
    return;
  std::map<int64_t, int64_t> positions; // how many have ranks on a node
  std::set<int64_t> most;               // nodes
  const std::vector<uint32_t> *worst = &devices.front();
  for (const std::vector<uint32_t> &own : devices) {
    std::set<int64_t> nodes;
    for (const uint32_t device : own)
      nodes.insert(places[device].node);
    for (const int64_t node : nodes)
      ++positions[node];
    if (nodes.size() > most.size())
      most = std::move(nodes), worst = &own;
  }
  if (most.size() > 1 && mesh.order != usualOrder)
    for (const int64_t node : most)
      placed.sharing = std::max(placed.sharing, static_cast<double>(positions[node]));
  // A single group on a node reaches a part of the link's rate, so that several positions have more than an equal part.
  if (placed.sharing > 1 && mesh.size(AxisRole::Tensor) == 1)
    placed.reach = topology.networkRate(worst->front()) / cluster.network->bytesPerSecond();
  placed.positions = {numberOf(*worst, shareOfLink(placed.sharing, placed.reach))};
}

/// How many stages of a pipeline work at the same time, on average over their work, while so many microbatches pass it
/// in one direction.
static double stagesAtWork(int64_t pipeline, int64_t microbatches) {
  const auto most = static_cast<double>(std::min(pipeline, microbatches)),
             all = static_cast<double>(pipeline) * static_cast<double>(microbatches),
             steady = std::abs(static_cast<double>(pipeline - microbatches)) + 1;
  return (most * most * steady + (most - 1) * most * (2 * most - 1) / 3) / all;
}

const std::vector<Site> &Sites::positions(const PlanGroup &group) {
  Placed &found = of(group);
  if (found.sharing == 1)
    return found.positions;
  auto [filled, fresh] = found.filled.try_emplace(group.microbatches);
  if (fresh) {
    const double others =
        (stagesAtWork(group.pipeline, group.microbatches) - 1) / static_cast<double>(group.pipeline - 1); // at work
    const Site all = found.positions.front(),
               site = numberOf(devices(all), shareOfLink(1 + others * (found.sharing - 1), found.reach));
    if (site != all)
      full.emplace(site, all);
    filled->second = {site};
  }
  return filled->second;
}

Site Sites::whenFull(Site site) const {
  const auto found = full.find(site);
  return found == full.end() ? site : found->second;
}

Sites::Placed &Sites::of(const PlanGroup &group) {
  auto [found, fresh] = placed.try_emplace({group.sizes, group.order});
  Placed &result = found->second;
  if (!fresh)
    return result;
  const Mesh mesh = group.mesh();
  const Positions devices = devicesOf(mesh);
  addLinks(result, mesh, devices);
  if (oneKind()) {
    setSpread(result, mesh, devices), result.groups = {{0}}, result.single = {{0}};
    return result;
  }
  for (const std::vector<uint32_t> &own : devices) {
    result.groups.push_back(partsAt(mesh, own, group.split.tensor));
    result.single.push_back(partsAt(mesh, own, 1));
    result.positions.push_back(numberOf(own));
  }
  return result;
}

const std::vector<std::vector<Site>> &Sites::parts(const PlanGroup &group, int64_t tensor) {
  const Placed &found = of(group);
  return tensor == 1 ? found.single : found.groups;
}

std::vector<Mesh> Sites::orders(const Mesh &mesh) const {
  std::vector<Mesh> found{mesh};
  if (oneKind() ? places.front().node == places.back().node : mesh.size(AxisRole::Pipeline) == 1)
    return found;
  const auto kindsOf = [&](const Mesh &ordered) {
    std::vector<std::multiset<size_t>> kindsAt;
    for (const std::vector<uint32_t> &devices : devicesOf(ordered))
      for (auto &at = kindsAt.emplace_back(); const uint32_t device : devices)
        at.insert(places[device].kind);
    return kindsAt;
  };
  std::set<std::vector<std::multiset<size_t>>> seenKinds{kindsOf(mesh)};
  std::set<std::vector<std::vector<int64_t>>> seenNodes{nodesOf(mesh)};
  AxisOrder permuted; // places in the usual order
  std::iota(permuted.begin(), permuted.end(), uint8_t{0});
  do {
    Mesh other = mesh;
    std::ranges::transform(permuted, other.order.begin(), [](uint8_t place) { return usualOrder[place]; });
    if (oneKind() ? seenNodes.insert(nodesOf(other)).second
                  : tensorInside(other) && seenKinds.insert(kindsOf(other)).second)
      found.push_back(parseMesh(meshText(other))); // in the one form of equal orders
  } while (std::ranges::next_permutation(permuted).found);
  return found;
}

void Sites::addLinks(Placed &placed, const Mesh &mesh, const Positions &devices) {
  const auto count = std::ssize(devices);
  const auto slicesFrom = count > 1 ? static_cast<double>(scatterGatherBytes(cluster, mesh)) : 0;
  std::map<std::pair<int64_t, bool>, std::map<std::pair<int64_t, int64_t>, double>> shares; // by node and direction
  for (int64_t from = 0; count > 1 && from < count; ++from)
    for (const int64_t to : {(from + 1) % count, (from + count - 1) % count}) {
      if (placed.boundaries.contains({from, to}))
        continue;
      const std::vector<uint32_t> &senders = devices[static_cast<size_t>(from)],
                                  &receivers = devices[static_cast<size_t>(to)];
      const double rate = (placed.boundaries[{from, to}] = boundary(mesh, senders, receivers, slicesFrom)).link.rate;
      for (size_t i = 0; i < senders.size(); ++i)
        if (const int64_t leaves = places[senders[i]].node, enters = places[receivers[i]].node; leaves != enters) {
          shares[{leaves, false}][{from, to}] += rate / topology.networkRate(senders[i]);
          shares[{enters, true}][{from, to}] += rate / topology.networkRate(receivers[i]);
        }
    }
  placed.links.oneAhead = cluster.devices[places.front().kind].backend == "cuda";
  std::set<std::map<std::pair<int64_t, int64_t>, double>> seen;
  for (const auto &[link, ofLink] : shares)
    if (seen.insert(ofLink).second) {
      const uint32_t number = placed.links.count;
      for (const auto &[ends, share] : ofLink)
        placed.links.add(ends, {number, share});
    }
}

Sites::Boundary Sites::boundary(const Mesh &mesh, const std::vector<uint32_t> &senders,
                                const std::vector<uint32_t> &receivers, double slicesFrom) {
  std::map<int64_t, double> leaving, entering; // messages by node
  for (size_t i = 0; i < senders.size(); ++i)
    if (places[senders[i]].node != places[receivers[i]].node)
      ++leaving[places[senders[i]].node], ++entering[places[receivers[i]].node];
  Boundary found;
  double slowest = 0;
  for (size_t i = 0; i < senders.size(); ++i) {
    MessageLink link = topology.message(senders[i], receivers[i]);
    if (places[senders[i]].node != places[receivers[i]].node)
      link.rate = std::min(link.rate, topology.networkRate(senders[i]) / std::max(leaving[places[senders[i]].node],
                                                                                  entering[places[receivers[i]].node]));
    constexpr double usual = 1e6; // bytes
    if (const double seconds = partitioner::messageSeconds(usual, link).all(); seconds > slowest)
      slowest = seconds, found.link = link;
  }
  found.slicesFrom = slicesFrom;
  if (found.slicesFrom > 0) {
    const int64_t first = mesh.coordinate(AxisRole::Data, mesh.coords(receivers.front()));
    std::vector<uint32_t> group;
    for (const uint32_t rank : receivers)
      if (mesh.coordinate(AxisRole::Data, mesh.coords(rank)) == first)
        group.push_back(rank);
    found.slices = topology.group(group);
  }
  return found;
}

SumGroup Sites::sumGroup(const std::vector<uint32_t> &members, const std::vector<uint32_t> &position) {
  SumGroup sums{topology.group(members)};
  const auto onNode = [&](uint32_t rank) { return places[rank].node == places[members.front()].node; };
  const auto here = std::ranges::count_if(position, onNode),
             own = std::ranges::count_if(
                 members, [&](uint32_t rank) { return onNode(rank) && std::ranges::count(position, rank); });
  if (sums.links.nodes > 1) // groups of the other ranks use the same network
    sums.stretch = std::max(1.0, static_cast<double>(here) / static_cast<double>(own) * busRate(sums.links) /
                                     topology.networkRate(members.front()));
  return sums;
}

double Sites::sumSeconds(const PlanGroup &group, double bytes, bool scatters) {
  std::optional<SumGroup> &sums = of(group).sums;
  if (!sums) {
    const Mesh mesh = group.mesh();
    const std::vector<uint32_t> first = devicesOf(mesh).front();
    std::vector<uint32_t> members;
    for (const uint32_t rank : first)
      if (mesh.coordinate(AxisRole::Tensor, mesh.coords(rank)) == 0)
        members.push_back(rank);
    sums = sumGroup(members, first);
  }
  return secondsOf(*sums, scatters ? plan::CollectiveKind::ReduceScatter : plan::CollectiveKind::AllReduce, bytes);
}

double Sites::tiedSeconds(const PlanGroup &group, const std::vector<int64_t> &positions, double bytes) {
  const auto [found, fresh] = of(group).tied.try_emplace(positions);
  if (fresh) {
    const Positions devices = devicesOf(group.mesh());
    std::vector<uint32_t> members;
    for (const int64_t position : positions)
      members.push_back(devices[static_cast<size_t>(position)].front());
    found->second = sumGroup(members, devices[static_cast<size_t>(positions.front())]);
  }
  return secondsOf(found->second, plan::CollectiveKind::AllReduce, bytes);
}

double Sites::metricsSeconds() {
  constexpr double bytes = 12; // loss, accuracy and rows
  if (!metrics) {
    std::vector<uint32_t> ranks(places.size());
    std::iota(ranks.begin(), ranks.end(), 0U);
    metrics = secondsOf({topology.group(ranks)}, plan::CollectiveKind::AllReduce, bytes);
  }
  return *metrics;
}

double Sites::sendSeconds(const PlanGroup &group, int64_t from, int64_t to, double bytes) {
  const Boundary &boundary = of(group).boundaries.at({from, to});
  const auto tensor = static_cast<double>(group.split.tensor);
  if (group.split.sequence)
    return messageSeconds(bytes / tensor, boundary.link).all();
  if (boundary.slicesFrom == 0 || bytes < boundary.slicesFrom)
    return messageSeconds(bytes, boundary.link).all();
  return messageSeconds(bytes / tensor, boundary.link).all() +
         collectiveCost(plan::CollectiveKind::AllGather, bytes, boundary.slices).seconds.all();
}

} // namespace cleave::partitioner
