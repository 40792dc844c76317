// Which graph ops a library can compute together with a product or a convolution. Selection reads it to make the calls,
// and the partitioner to decide which biases are in memory, in the product's type, when a call needs them.
#pragma once
#include "ir/graph/Graph.h"

namespace cleave::library {

/// The vector that `add` adds to `value` along dimension `dim`; null where it adds anything else.
mlir::Value addedVector(ir::AddOp add, mlir::Value value, int64_t dim);

/// The bias that `add` adds to `value`, the result of a matrix product (perhaps reshaped) or of a convolution: a vector
/// along the last dimension or the channels. Null where it adds anything else.
mlir::Value addedBias(ir::AddOp add, mlir::Value value);

/// Whether a library applies the op to a product's sums: relu, and gelu in the tanh form (cublasLtEpilogue_t).
bool isActivation(mlir::Operation *op);

} // namespace cleave::library
