// Puts a choice of shardings onto a function.
#pragma once
#include "partitioner/sharding/Solution.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::partitioner {

/// Writes the solution of the problem that `func` was read as: makes its reshards and copies, gives ops the operands
/// that it says, in its order, and every value its sharding as an attribute.
void writeSolution(mlir::func::FuncOp func, const ShardingSolution &solution);

} // namespace cleave::partitioner
