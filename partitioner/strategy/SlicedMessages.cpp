#include "partitioner/strategy/SlicedMessages.h"

#include "partitioner/cost/ScatterGather.h"

namespace cleave::partitioner {

int64_t slicedMessageBytes(const Cluster &cluster, const Mesh &mesh) {
  const auto rankAt = [&](int64_t pp, int64_t dp, int64_t tp) {
    std::vector<int64_t> coords;
    for (const MeshAxis &axis : mesh.axes)
      coords.push_back(*axis.role() == AxisRole::Pipeline ? pp : *axis.role() == AxisRole::Data ? dp : tp);
    return mesh.rank(coords);
  };
  return scatterGatherBytes(cluster, mesh.size(AxisRole::Data), mesh.size(AxisRole::Tensor),
                            mesh.size(AxisRole::Pipeline), rankAt);
}

} // namespace cleave::partitioner
