// Looks ahead from a linear layer's output to the attention it feeds.
#pragma once
#include "ir/dist/Sharding.h"
#include "partitioner/sharding/Pinned.h"

#include "mlir/IR/Value.h"

namespace cleave::partitioner {

/// How dimension `dim` (of `size` elements) of a product is split over `axis` by default: by the factor that becomes a
/// batch dimension of a later product where a reshape shows one (the heads of a fused qkv: (3 x H:tp x D)), else whole.
DimSharding splitByHeads(mlir::Value value, int64_t dim, int64_t size, const std::string &axis, int64_t parts);

/// Where a parameter's dimension becomes the heads of an attention (a qkv weight or bias); nothing where none does.
std::optional<HeadsPlace> headsOf(mlir::Value parameter);

} // namespace cleave::partitioner
