// Passes a sharding through a reshape by regrouping the factors of all dimensions in row-major order.
#pragma once
#include "ir/dist/Sharding.h"

#include <optional>

namespace cleave::partitioner {

/// The sharding of `to` under which every rank holds the same elements as under `sharding` of `from`; empty if there is
/// none (a split factor would have to be cut where shares do not align). Partial axes pass through.
std::optional<Sharding> reshapeSharding(const Sharding &sharding, const std::vector<int64_t> &from,
                                        const std::vector<int64_t> &to, const Mesh &mesh);

/// As reshapeSharding, but if that fails gives up the split of one dimension of the operand, or else all its splits.
/// `sharding` becomes the sharding that the operand needs.
Sharding reshapeOrGather(Sharding &sharding, const std::vector<int64_t> &from, const std::vector<int64_t> &to,
                         const Mesh &mesh);

} // namespace cleave::partitioner
