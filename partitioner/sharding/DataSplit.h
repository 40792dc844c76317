// Which free dimension of a tensor one more axis splits.
#pragma once
#include "ir/dist/Sharding.h"

#include <optional>
#include <vector>

namespace cleave::partitioner {

/// `sharding` with the first dimension of `shape` that nothing splits and that `axis` divides split over it, too. Empty
/// if there is none, or if the tensor already uses the axis.
std::optional<Sharding> splitEvenly(Sharding sharding, const std::vector<int64_t> &shape, const std::string &axis,
                                    const Mesh &mesh);

/// For ZeRO: `sharding` with one more dimension split over dp: of the dimensions of `shape` that nothing splits and
/// that have at least dp elements, the first that dp divides, or else the first. Empty if there is none, if the tensor
/// already uses dp, if dp has one rank, and for vectors: they are small, and their gradients are summed in buckets.
std::optional<Sharding> splitOverData(Sharding sharding, const std::vector<int64_t> &shape, const Mesh &mesh);

} // namespace cleave::partitioner
