// Prices messages by the links of a group of ranks, and ops by the roofline.
#include "partitioner/search/LayoutCosts.h"

#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace cleave::partitioner {

LayoutCosts::LayoutCosts(std::vector<LayoutDevices> places, const Mesh &mesh, Rate half, Rate single)
    : places(std::move(places)), mesh(mesh),
      device(this->places[0].cluster.devices[this->places[0].cluster.places(1).front().kind]), half(half),
      single(single) {
  for (const auto &[cluster, devices] : this->places)
    topologies.emplace_back(mesh.ranks(), cluster, devices);
}

/// Of the group of rank 0.
const std::vector<GroupLinks> &LayoutCosts::links(const std::vector<std::string> &axes) {
  const auto [found, fresh] = groups.try_emplace(axes);
  if (fresh) {
    std::vector<uint32_t> members;
    for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
      const std::vector<int64_t> coords = mesh.coords(rank);
      bool member = true;
      for (size_t a = 0; a < coords.size(); ++a)
        member &= coords[a] == 0 || std::ranges::find(axes, mesh.axes[a].name) != axes.end();
      if (member)
        members.push_back(static_cast<uint32_t>(rank));
    }
    for (Topology &topology : topologies)
      found->second.push_back(topology.group(members));
  }
  return found->second;
}

static int64_t wholePicoseconds(double seconds) {
  constexpr double most = 1e6; // seconds
  return std::llround(std::min(seconds, most) / LayoutCosts::picosecond);
}

int64_t LayoutCosts::message(const Message &message) {
  const auto kind = message.kind == Collective::AllReduce   ? plan::CollectiveKind::AllReduce
                    : message.kind == Collective::AllGather ? plan::CollectiveKind::AllGather
                                                            : plan::CollectiveKind::ReduceScatter;
  double least = INFINITY;
  for (const GroupLinks &one : links(message.axes))
    least = std::min(least, collectiveCost(kind, static_cast<double>(message.bytes), one).seconds.all());
  return wholePicoseconds(least);
}

int64_t LayoutCosts::work(StepWork work, int64_t elementBits) const {
  work.rate = elementBits <= 16 ? half : single;
  return wholePicoseconds(stepCost(work, device).seconds());
}

} // namespace cleave::partitioner
