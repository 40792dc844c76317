// Defines which elements of a sharded tensor a rank holds, and cuts and places pieces. Written for clarity, as the
// reference for all other implementations.
#pragma once
#include "ir/dist/Sharding.h"
#include "ir/interpreter/HostTensor.h"

namespace cleave::ir {

/// For each dimension, the global index of every local index. `sharding` must be resolved.
std::vector<std::vector<int64_t>> globalIndices(const Sharding &sharding, const Mesh &mesh,
                                                const std::vector<int64_t> &coords);

/// Calls f(local, global) with the linear indices of every element that this rank holds, in local order.
template <typename F>
void forEachElement(const std::vector<std::vector<int64_t>> &indices, const std::vector<int64_t> &global, F f) {
  std::vector<size_t> at(indices.size(), 0);
  std::vector<int64_t> strides = stridesOf(global);
  for (const auto &dim : indices)
    if (dim.empty())
      return;
  for (int64_t local = 0;; ++local) {
    int64_t linear = 0;
    for (size_t d = 0; d < at.size(); ++d)
      linear += indices[d][at[d]] * strides[d];
    f(local, linear);
    size_t d = at.size();
    while (d > 0 && ++at[d - 1] == indices[d - 1].size())
      at[--d] = 0;
    if (d == 0)
      return;
  }
}

/// The piece of `global` at `coords`. Ignores partial axes: every member gets the whole value.
HostTensor localPiece(const HostTensor &global, const Sharding &sharding, const Mesh &mesh,
                      const std::vector<int64_t> &coords);
/// Writes a rank's piece into `global`.
void placePiece(HostTensor &global, const HostTensor &local, const Sharding &sharding, const Mesh &mesh,
                const std::vector<int64_t> &coords);

} // namespace cleave::ir
