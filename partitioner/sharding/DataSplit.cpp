#include "partitioner/sharding/DataSplit.h"

namespace cleave::partitioner {

/// Splits, over `axis`, the first unsplit dimension whose size `suits` accepts.
template <class F>
static std::optional<Sharding> splitFirst(Sharding sharding, const std::vector<int64_t> &shape, const std::string &axis,
                                          F suits) {
  if (sharding.usesAxis(axis))
    return std::nullopt;
  for (size_t d = 0; d < shape.size(); ++d)
    if (!sharding.dims[d].split() && suits(shape[d])) {
      sharding.dims[d].factors = {{shape[d], {axis}}};
      return sharding;
    }
  return std::nullopt;
}

std::optional<Sharding> splitEvenly(Sharding sharding, const std::vector<int64_t> &shape, const std::string &axis,
                                    const Mesh &mesh) {
  return splitFirst(std::move(sharding), shape, axis, [&](int64_t size) { return size % mesh.size(axis) == 0; });
}

std::optional<Sharding> splitOverData(Sharding sharding, const std::vector<int64_t> &shape, const Mesh &mesh) {
  const int64_t dp = mesh.size(AxisRole::Data);
  if (dp == 1 || shape.size() < 2)
    return std::nullopt;
  if (std::optional<Sharding> even = splitEvenly(sharding, shape, axisName(AxisRole::Data), mesh))
    return even;
  return splitFirst(std::move(sharding), shape, axisName(AxisRole::Data), [&](int64_t size) { return size >= dp; });
}

} // namespace cleave::partitioner
