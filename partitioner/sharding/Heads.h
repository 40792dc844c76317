// Looks ahead from a linear layer's output to the attention or the slices it feeds.
#pragma once
#include "ir/dist/Sharding.h"
#include "partitioner/sharding/Pinned.h"

#include "mlir/IR/Value.h"

namespace cleave::partitioner {

/// How dimension `dim` of a product is split over `axis` (of `parts` members) by default: by the factor that becomes a
/// batch dimension of a later product where a reshape shows one (the heads of a fused qkv: 3 x H:tp x D), also behind
/// slices of the dimension; else by the runs of which slices take some (a fused gate and up projection: 2 x W:tp); else
/// as a whole.
DimSharding defaultSplit(mlir::Value value, int64_t dim, const std::string &axis, int64_t parts);

/// Where a parameter's dimension becomes the heads of an attention (a qkv weight or bias); nothing where none does.
std::optional<HeadsPlace> headsOf(mlir::Value parameter);

} // namespace cleave::partitioner
