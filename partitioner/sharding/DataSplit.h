// Chooses an unsplit dimension of a tensor and splits it over more axes.
#pragma once
#include "ir/dist/Sharding.h"

#include <optional>
#include <vector>

namespace cleave::partitioner {

/// Returns `sharding` with the first unsplit dimension of `shape` that is divisible by the mesh's size for `role` split
/// over the axes with this role. Empty if there is none, or if the tensor already uses such an axis.
std::optional<Sharding> splitEvenly(Sharding sharding, const std::vector<int64_t> &shape, AxisRole role,
                                    const Mesh &mesh);

/// For ZeRO: returns `sharding` with one more dimension split over dp. Of the unsplit dimensions of `shape` with at
/// least dp elements it takes the first that is divisible by dp, or else the first. Empty if there is none, if the
/// tensor already uses dp, if dp has one rank, and for vectors: they are small, and their gradients are summed in
/// buckets.
std::optional<Sharding> splitOverData(Sharding sharding, const std::vector<int64_t> &shape, const Mesh &mesh);

} // namespace cleave::partitioner
