// Prices messages by the links of a group of ranks, and ops by the roofline.
#include "partitioner/search/LayoutCosts.h"

#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <cmath>

namespace cleave::partitioner {

LayoutCosts::LayoutCosts(const Cluster &cluster, const Mesh &mesh, Rate half, Rate single)
    : mesh(mesh), device(cluster.devices[cluster.places(1).front().kind]), topology(mesh.ranks(), cluster), half(half),
      single(single) {}

/// Of the group of rank 0.
const GroupLinks &LayoutCosts::links(const std::vector<std::string> &axes) {
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
    found->second = topology.group(members);
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
  return wholePicoseconds(collectiveCost(kind, static_cast<double>(message.bytes), links(message.axes)).seconds.all());
}

int64_t LayoutCosts::work(StepWork work, int64_t elementBits) const {
  work.rate = elementBits <= 16 ? half : single;
  return wholePicoseconds(stepCost(work, device).seconds());
}

} // namespace cleave::partitioner
