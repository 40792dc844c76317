// Translates IR to kernel graphs: `cleave.fusion` ops for code generation, and candidate groups of ops for fusion.
#pragma once
#include "passes/codegen/nest/KernelGraph.h"

#include "mlir/IR/Operation.h"
#include "llvm/ADT/ArrayRef.h"

namespace cleave::passes::kernel {

/// True for ops of the graph dialect that a kernel can compute (all elementwise, constant, iota, indexing, reduce).
bool isFusible(mlir::Operation *op);

/// The node of one op, without operands.
Node nodeOf(mlir::Operation *op);

/// The node of an input that is read from memory.
Node inputOf(mlir::Type type);

/// The graph of `ops` (operands before users) with the external `inputs`, in this order, and `outputs` among the ops'
/// results (or inputs). scalar[i]: input i is passed as a scalar.
KernelGraph graphOf(llvm::ArrayRef<mlir::Value> inputs, llvm::ArrayRef<mlir::Operation *> ops,
                    llvm::ArrayRef<mlir::Value> outputs, llvm::ArrayRef<bool> scalar);

/// The graph of a `cleave.fusion`; operands defined by dist.shard_offset are scalars.
KernelGraph graphOfFusion(mlir::Operation *fusion);

/// True for results of dist.shard_offset.
bool isShardOffset(mlir::Value value);

} // namespace cleave::passes::kernel
