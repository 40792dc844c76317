#include "partitioner/cost/ScatterGather.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace cleave::partitioner {

int64_t scatterGatherBytes(const Cluster &cluster, int64_t dp, int64_t tp, int64_t pp) {
  if (tp == 1 || pp == 1 || !cluster.network)
    return 0;
  const int64_t stage = dp * tp;
  const std::vector<Cluster::Place> places = cluster.places(stage * pp);
  std::map<int64_t, int64_t> senders; // by node: ranks that send to other nodes
  for (int64_t rank = 0; rank < stage * pp; ++rank) {
    if (places[static_cast<size_t>(rank)].node != places[static_cast<size_t>(rank / tp * tp)].node)
      return 0;
    if (rank + stage < stage * pp &&
        places[static_cast<size_t>(rank)].node != places[static_cast<size_t>(rank + stage)].node)
      ++senders[places[static_cast<size_t>(rank)].node];
  }
  int64_t most = 0;
  for (const auto &[node, count] : senders)
    most = std::max(most, count);
  if (most == 0)
    return 0;
  Link inside = *cluster.nodes[places.front().group].inside; // the slowest link inside a node
  for (const Cluster::Place &place : places)
    if (const Link &link = *cluster.nodes[place.group].inside; link.gbPerS < inside.gbPerS)
      inside = link;
  const double share = cluster.network->bytesPerSecond() / static_cast<double>(most);
  const double gain = (1 / share - 1 / inside.bytesPerSecond()) * static_cast<double>(tp - 1) / static_cast<double>(tp);
  const double ring = static_cast<double>(tp - 1) * inside.latency();
  return gain > 0 ? std::max<int64_t>(1, std::llround(std::ceil(ring / gain))) : 0;
}

} // namespace cleave::partitioner
