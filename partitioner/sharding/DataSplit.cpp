#include "partitioner/sharding/DataSplit.h"

namespace cleave::partitioner {

std::optional<Sharding> splitOverData(Sharding sharding, const std::vector<int64_t> &shape, const Mesh &mesh) {
  const int64_t dp = mesh.size("dp");
  if (dp == 1 || shape.size() < 2 || sharding.usesAxis("dp"))
    return std::nullopt;
  std::optional<size_t> chosen;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (sharding.dims[d].split() || shape[d] < dp)
      continue;
    if (shape[d] % dp == 0) {
      chosen = d;
      break;
    }
    if (!chosen)
      chosen = d;
  }
  if (!chosen)
    return std::nullopt;
  sharding.dims[*chosen].factors = {{shape[*chosen], {"dp"}}};
  return sharding;
}

} // namespace cleave::partitioner
