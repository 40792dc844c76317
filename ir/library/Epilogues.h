// Which graph ops a library can compute together with a product or a convolution. Selection uses these functions to
// form calls. The partitioner uses them to decide which biases need a working copy in the product's type.
#pragma once
#include "ir/graph/Graph.h"

namespace cleave::library {

/// The vector that `add` adds to `value` along dimension `dim`; null if it adds anything else.
mlir::Value addedVector(ir::AddOp add, mlir::Value value, int64_t dim);

/// The bias that `add` adds to `value`: a vector along the last dimension of a matrix product's result (perhaps
/// reshaped), or along the channels of a convolution's result. Null if it adds anything else.
mlir::Value addedBias(ir::AddOp add, mlir::Value value);

/// Whether a library can apply the op as a product's epilogue: relu, and gelu in the tanh form (cublasLtEpilogue_t).
bool isActivation(mlir::Operation *op);

} // namespace cleave::library
