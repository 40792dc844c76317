// Adds reshards to an annotated function.
#pragma once
#include "ir/dist/Dist.h"
#include "ir/dist/Sharding.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::partitioner {

dist::ShardingAttr attributeOf(mlir::MLIRContext *context, const Sharding &sharding);

/// Reshards `value` at the builder's insertion point, with the path, stage and phase of `marks`.
dist::ReshardOp reshardAt(mlir::OpBuilder &builder, mlir::Value value, const Sharding &to, mlir::Operation *marks);

/// Makes the metrics (loss, weight, correct) of annotated functions partial over the same axes, so that all accumulate
/// in the same slots. An axis that is not partial in all of the functions is reduced in each microbatch. Null functions
/// are skipped.
void alignMetrics(llvm::ArrayRef<mlir::func::FuncOp> functions);

} // namespace cleave::partitioner
