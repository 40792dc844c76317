// Translates IR to kernel graphs: `cleave.fusion` ops for code generation, and candidate groups of ops for fusion.
#pragma once
#include "passes/codegen/nest/KernelGraph.h"

#include "mlir/IR/Operation.h"
#include "llvm/ADT/ArrayRef.h"

namespace cleave::passes::kernel {

/// True for ops of the graph dialect that a kernel can compute (all elementwise, constant, iota, indexing, reduce).
bool isFusible(mlir::Operation *op);

/// Whether to read the elements of constants. They may be many, and only code has them: without them a graph can be
/// planned, and a kernel's cost estimated.
enum class Tables : uint8_t { Read, Omit };

/// The node of one op, without operands.
Node nodeOf(mlir::Operation *op, Tables tables = Tables::Read);

/// The node of an input that is read from memory.
Node inputOf(mlir::Type type);

/// The graph of `ops` (operands before users) with the external `inputs`, in this order, and `outputs` among the ops'
/// results (or inputs). scalar[i]: input i is passed as a scalar.
KernelGraph graphOf(llvm::ArrayRef<mlir::Value> inputs, llvm::ArrayRef<mlir::Operation *> ops,
                    llvm::ArrayRef<mlir::Value> outputs, llvm::ArrayRef<bool> scalar, Tables tables);

/// The graph of a `cleave.fusion`; operands defined by dist.shard_offset are scalars.
KernelGraph graphOfFusion(mlir::Operation *fusion);

/// True for results of dist.shard_offset.
bool isShardOffset(mlir::Value value);

} // namespace cleave::passes::kernel
