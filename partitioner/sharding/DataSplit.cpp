#include "partitioner/sharding/DataSplit.h"

namespace cleave::partitioner {

/// Splits, over the axes with a role, the first unsplit dimension whose size `suits` accepts.
template <class F>
static std::optional<Sharding> splitFirst(Sharding sharding, const std::vector<int64_t> &shape, AxisRole role,
                                          F suits) {
  if (sharding.usesAxis(role))
    return std::nullopt;
  for (size_t d = 0; d < shape.size(); ++d)
    if (!sharding.dims[d].split() && suits(shape[d])) {
      sharding.dims[d].factors = {{shape[d], axesOf(role)}};
      return sharding;
    }
  return std::nullopt;
}

std::optional<Sharding> splitEvenly(Sharding sharding, const std::vector<int64_t> &shape, AxisRole role,
                                    const Mesh &mesh) {
  return splitFirst(std::move(sharding), shape, role, [&](int64_t size) { return size % mesh.size(role) == 0; });
}

std::optional<Sharding> splitOverData(Sharding sharding, const std::vector<int64_t> &shape, const Mesh &mesh) {
  const int64_t dp = mesh.size(AxisRole::Data);
  if (dp == 1 || shape.size() < 2)
    return std::nullopt;
  if (std::optional<Sharding> even = splitEvenly(sharding, shape, AxisRole::Data, mesh))
    return even;
  return splitFirst(std::move(sharding), shape, AxisRole::Data, [&](int64_t size) { return size >= dp; });
}

} // namespace cleave::partitioner
