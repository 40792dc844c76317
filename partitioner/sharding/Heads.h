// Looks ahead from a linear layer's output to the attention or the slices that it feeds.
#pragma once
#include "partitioner/sharding/Pinned.h"
#include "partitioner/sharding/Problem.h"

namespace cleave::partitioner {

/// A dimension viewed as outer x size x inner, where `size` may be split.
struct DimCut {
  int64_t outer = 1, size = 1, inner = 1;
  bool operator==(const DimCut &) const = default;
  /// The dimension with the middle factor split over `axes`.
  DimSharding over(const std::vector<std::string> &axes) const;
};

/// Chooses how dimension `dim` of a product is split into `parts` by default. First choice: the factor that a reshape,
/// also one behind slices of the dimension, turns into a batch dimension of a later product (the heads of a fused qkv:
/// 3 x H:tp x D). Second choice: the runs that slices take (a fused gate and up projection: 2 x W:tp). Otherwise the
/// whole dimension.
DimCut defaultCut(const ShardingProblem &problem, TensorId tensor, size_t dim, int64_t parts);

/// The dimension and factor of a parameter that become the heads of an attention (a qkv weight or bias); empty if none.
std::optional<HeadsPlace> headsOf(const ShardingProblem &problem, TensorId parameter);

} // namespace cleave::partitioner
