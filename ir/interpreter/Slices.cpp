// Cuts and places the pieces of a sharded tensor.
#include "ir/interpreter/Slices.h"

#include <cassert>

namespace cleave::ir {

std::vector<std::vector<int64_t>> globalIndices(const Sharding &sharding, const Mesh &mesh,
                                                const std::vector<int64_t> &coords) {
  std::vector<std::vector<int64_t>> indices;
  for (const DimSharding &dim : sharding.dims) {
    std::vector<int64_t> held{0}; // indices into the product of the factors so far
    for (const Factor &factor : dim.factors) {
      assert(factor.size > 0);
      int64_t parts = mesh.size(factor.axes), at = mesh.linear(factor.axes, coords);
      int64_t start = shareStart(factor.size, parts, at), size = shareSize(factor.size, parts, at);
      std::vector<int64_t> next;
      for (int64_t major : held)
        for (int64_t i = 0; i < size; ++i)
          next.push_back(major * factor.size + start + i);
      held = std::move(next);
    }
    indices.push_back(std::move(held));
  }
  return indices;
}

static Sharding resolved(Sharding sharding, const std::vector<int64_t> &shape) {
  [[maybe_unused]] bool fits = sharding.resolve(shape);
  assert(fits);
  return sharding;
}

HostTensor localPiece(const HostTensor &global, const Sharding &sharding, const Mesh &mesh,
                      const std::vector<int64_t> &coords) {
  auto indices = globalIndices(resolved(sharding, global.shape), mesh, coords);
  HostTensor local;
  local.dtype = global.dtype;
  for (const auto &dim : indices)
    local.shape.push_back(dim.size());
  local.values.reserve(elementCount(local.shape));
  forEachElement(indices, global.shape, [&](int64_t, int64_t from) { local.values.push_back(global.values[from]); });
  return local;
}

void placePiece(HostTensor &global, const HostTensor &local, const Sharding &sharding, const Mesh &mesh,
                const std::vector<int64_t> &coords) {
  auto indices = globalIndices(resolved(sharding, global.shape), mesh, coords);
  forEachElement(indices, global.shape, [&](int64_t from, int64_t to) { global.values[to] = local.values[from]; });
}

} // namespace cleave::ir
