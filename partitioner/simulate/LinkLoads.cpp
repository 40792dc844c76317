// Integrates the speeds of transfers over time, once per flow, and sums the shares of the flows of each link.
#include "partitioner/simulate/LinkLoads.h"

#include "partitioner/simulate/Flows.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace cleave::partitioner {

namespace {

/// For each flow, the mean of the sum of its transfers' speeds in each part of the iteration.
std::vector<std::vector<double>> speedsByTime(const Simulation &simulation, size_t parts) {
  std::vector<std::vector<double>> speeds(simulation.ranks.flows.size(), std::vector<double>(parts));
  const double part = simulation.stepSeconds / static_cast<double>(parts);
  for (const TransferPiece &piece : simulation.traffic)
    for (auto at = static_cast<size_t>(std::max(0.0, piece.begin / part)); at < parts; ++at) {
      const double begin = static_cast<double>(at) * part;
      if (begin >= piece.end)
        break;
      speeds[piece.flow][at] +=
          piece.speed * std::max(0.0, std::min(piece.end, begin + part) - std::max(piece.begin, begin)) / part;
    }
  return speeds;
}

std::vector<LinkLoad> loadsOf(const std::map<uint64_t, FlowShares> &links, const RankClasses &ranks,
                              const std::vector<std::vector<double>> &speeds, size_t parts) {
  std::vector<LinkLoad> loads;
  std::map<std::tuple<LinkKind, bool, std::vector<double>>, size_t> same;
  for (const auto &[link, uses] : links) {
    std::vector<double> byTime(parts);
    double sum = 0;
    for (const auto &[flow, share] : uses)
      for (size_t at = 0; at < parts; ++at)
        byTime[at] += share / ranks.flows[flow].stretch * speeds[flow][at];
    for (const double load : byTime)
      sum += load;
    if (sum == 0)
      continue;
    const LinkEnds ends = linkEnds(link);
    const auto [found, added] = same.try_emplace({ends.kind, ends.in, byTime}, loads.size());
    if (added)
      loads.push_back({.links = {}, .byTime = std::move(byTime), .mean = sum / static_cast<double>(parts)});
    loads[found->second].links.push_back(ends);
  }
  return loads;
}

} // namespace

std::vector<NodeLoads> nodeLoads(const plan::Plan &plan, const Cluster &cluster, const Simulation &simulation,
                                 size_t parts, size_t mostNodes) {
  const std::vector<uint32_t> &classOf = simulation.ranks.classOf;
  const auto places = cluster.places(static_cast<int64_t>(classOf.size()));
  std::map<int64_t, std::vector<uint32_t>> byNode;
  for (uint32_t r = 0; r < places.size(); ++r)
    byNode[places[r].node].push_back(r);
  std::vector<NodeLoads> all;
  std::map<std::vector<uint32_t>, size_t> alike; // by classes of the ranks
  for (const auto &[node, ranks] : byNode) {
    std::vector<uint32_t> classes;
    for (const uint32_t rank : ranks)
      classes.push_back(classOf[rank]);
    const auto [found, added] = alike.try_emplace(std::move(classes), all.size());
    if (added)
      all.push_back({.ranks = ranks, .nodes = {}, .links = {}});
    all[found->second].nodes.push_back(static_cast<uint32_t>(node));
  }
  if (simulation.stepSeconds <= 0)
    return all;
  Topology topology(plan, cluster);
  const auto speeds = speedsByTime(simulation, parts);
  for (size_t n = 0; n < std::min(all.size(), mostNodes); ++n)
    all[n].links =
        loadsOf(linksOfNode(plan, topology, simulation.ranks, all[n].ranks), simulation.ranks, speeds, parts);
  return all;
}

} // namespace cleave::partitioner
