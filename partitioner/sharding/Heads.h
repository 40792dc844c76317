// Looks ahead from a linear layer's output to the attention or the slices that it feeds.
#pragma once
#include "partitioner/sharding/Pinned.h"
#include "partitioner/sharding/Problem.h"

namespace cleave::partitioner {

/// A dimension as outer x size x inner, of which `size` may be split.
struct DimCut {
  int64_t outer = 1, size = 1, inner = 1;
  bool operator==(const DimCut &) const = default;
  /// The dimension with the middle factor split over `axes`.
  DimSharding over(const std::vector<std::string> &axes) const;
};

/// Where dimension `dim` of a product is split by default, into `parts`: at the factor that becomes a batch dimension
/// of a later product where a reshape shows one (the heads of a fused qkv: 3 x H:tp x D), also behind slices of the
/// dimension; else at the runs of which slices take some (a fused gate and up projection: 2 x W:tp); else as a whole.
DimCut defaultCut(const ShardingProblem &problem, TensorId tensor, size_t dim, int64_t parts);

/// Where a parameter's dimension becomes the heads of an attention (a qkv weight or bias); nothing where none does.
std::optional<HeadsPlace> headsOf(const ShardingProblem &problem, TensorId parameter);

} // namespace cleave::partitioner
