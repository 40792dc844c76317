// Selection of library steps, before fusion: matrix products with the strides of their operands and results
// (transposes, slices and reshapes around them cost nothing), biases that a library adds, gradients that a library
// accumulates.
#pragma once
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::passes {

/// Sums of zero-padded pieces that fill the whole become concatenations.
void joinPads(mlir::func::FuncOp function);

/// Removes what functions stash and no later one reads, and the ops that only made that. A later function may have lost
/// its reader since the stash was decided. `functions`: of one schedule, in its order.
void dropUnreadStashes(llvm::ArrayRef<mlir::func::FuncOp> functions);

/// What one function of a class stashes for later ones lies in memory as it is read: where all that is done to the
/// result of a matrix product or of attention is one transposition, that is stashed in its place. `functions`: of one
/// schedule, in its order.
void layOutStashes(llvm::ArrayRef<mlir::func::FuncOp> functions);

/// Products, convolutions and pooling on float types that are not `supported` compute in f32 and round their results.
void widenLibraryOps(mlir::func::FuncOp function, llvm::function_ref<bool(mlir::Type)> supported);

struct SelectOptions {
  /// Matrix products take relu, gelu (tanh form) and its gradient along, as cuBLASLt has them, and convolutions with a
  /// bias take relu, as cuDNN has it. A weight's gradient takes its bias's along where this is a sum of its own.
  bool epilogues = false;
  /// Gradients that are products in half and kept in f32 are written as f32, without rounding to half in between.
  bool widen = false;
};
/// Replaces matrix products, convolutions, pooling, attention and embedding_grad by ops of the library dialect,
/// together with the biases, activations and accumulations that the library does; then removes what is no longer used.
void selectLibraryCalls(mlir::func::FuncOp function, SelectOptions options = {});

/// Chooses the library calls of one function for a code target (passes/codegen/Codegen.h): widens, tidies, selects.
void select(mlir::func::FuncOp function, const std::string &target);

} // namespace cleave::passes
