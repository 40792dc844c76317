// How a sharding passes through a reshape: the factors of all dimensions, in row-major order, regroup.
#pragma once
#include "ir/dist/Sharding.h"

#include <optional>

namespace cleave::partitioner {

/// The sharding of `to` that holds exactly the elements that `sharding` of `from` holds, on every rank; empty where
/// none does (a split factor would have to be cut where shares do not align). Partial axes pass through.
std::optional<Sharding> reshapeSharding(const Sharding &sharding, const std::vector<int64_t> &from,
                                        const std::vector<int64_t> &to, const Mesh &mesh);

/// As above, after giving up as few splits of the operand as needed; `sharding` is changed to what the operand must be.
Sharding reshapeOrGather(Sharding &sharding, const std::vector<int64_t> &from, const std::vector<int64_t> &to,
                         const Mesh &mesh);

} // namespace cleave::partitioner
