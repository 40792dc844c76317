#include "partitioner/cost/ScatterGather.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace cleave::partitioner {

/// The slowest links of a tp group inside its node.
static Link slowestInside(const Cluster &cluster, const std::vector<std::vector<Cluster::Place>> &tpGroups) {
  Link slowest{INFINITY, 0};
  std::set<std::pair<size_t, std::vector<uint32_t>>> seen; // group of nodes, devices
  for (const std::vector<Cluster::Place> &places : tpGroups) {
    std::vector<uint32_t> devices;
    for (const Cluster::Place &place : places)
      devices.push_back(place.device);
    const NodeGroup &node = cluster.nodes[places.front().group];
    if (!seen.insert({places.front().group, devices}).second)
      continue;
    if (const double rate = node.rings(devices).gbPerS; rate < slowest.gbPerS)
      slowest = {rate, node.inside->latencyUs};
  }
  return slowest;
}

int64_t scatterGatherBytes(const Cluster &cluster, const Mesh &mesh) {
  const int64_t dp = mesh.size(AxisRole::Data), tp = mesh.size(AxisRole::Tensor), pp = mesh.size(AxisRole::Pipeline);
  if (tp == 1 || pp == 1 || !cluster.network)
    return 0;
  const std::vector<Cluster::Place> places = cluster.places(dp * tp * pp);
  const auto placeAt = [&](int64_t p, int64_t d, int64_t t) {
    std::vector<int64_t> coords = mesh.with(AxisRole::Pipeline, p, std::vector<int64_t>(mesh.axes.size()));
    coords = mesh.with(AxisRole::Tensor, t, mesh.with(AxisRole::Data, d, std::move(coords)));
    return places[static_cast<size_t>(mesh.rank(coords))];
  };
  std::vector<std::vector<Cluster::Place>> tpGroups;
  std::map<int64_t, int64_t> senders; // by node: ranks that send to other nodes
  for (int64_t p = 0; p < pp; ++p)
    for (int64_t d = 0; d < dp; ++d) {
      std::vector<Cluster::Place> &group = tpGroups.emplace_back();
      for (int64_t t = 0; t < tp; ++t) {
        group.push_back(placeAt(p, d, t));
        if (group.back().node != group.front().node)
          return 0;
        if (p + 1 < pp && group.back().node != placeAt(p + 1, d, t).node)
          ++senders[group.back().node];
      }
    }
  int64_t most = 0;
  for (const auto &[node, count] : senders)
    most = std::max(most, count);
  if (most == 0)
    return 0;
  const Link inside = slowestInside(cluster, tpGroups);
  const double share = cluster.network->bytesPerSecond() / static_cast<double>(most);
  const double gain = (1 / share - 1 / inside.bytesPerSecond()) * static_cast<double>(tp - 1) / static_cast<double>(tp);
  const double ring = static_cast<double>(tp - 1) * inside.latency();
  return gain > 0 ? std::max<int64_t>(1, std::llround(std::ceil(ring / gain))) : 0;
}

} // namespace cleave::partitioner
