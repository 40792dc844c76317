// Writes a choice of shardings to a function.
#pragma once
#include "partitioner/sharding/Solution.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::partitioner {

/// Writes the solution of the problem that was read from `func`: creates reshards and copies, sets operands and the
/// order of ops, and stores the sharding of every value as an attribute.
void writeSolution(mlir::func::FuncOp func, const ShardingSolution &solution);

} // namespace cleave::partitioner
