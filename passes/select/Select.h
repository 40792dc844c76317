// Selection of library calls, before fusion. A call reads its operands and writes its result with strides, so that
// transposes, slices and reshapes around it cost nothing; it adds biases and accumulates gradients.
#pragma once
#include "runtime/base/Target.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::passes {

/// Replaces sums of zero-padded pieces by concatenations, if the pieces fill the whole.
void joinPads(mlir::func::FuncOp function);

/// Replaces sums of small products over the rows of their operands by one product of the concatenated rows, if that
/// reads and writes less; and sums over the rows of sums of matrices by those of a concatenation of these matrices, if
/// there is one. Comes after `joinPads`, whose concatenations it uses.
void joinSteps(mlir::func::FuncOp function);

/// Removes stashed values that no later function reads, and the ops that only computed them. (A reader can disappear
/// after the stash was decided.) `functions`: in the order of one schedule.
void dropUnreadStashes(llvm::ArrayRef<mlir::func::FuncOp> functions);

/// Stashes the transposed result of a matrix product or of attention instead of the result itself, if one transposition
/// is its only use. `functions`: in the order of one schedule.
void layOutStashes(llvm::ArrayRef<mlir::func::FuncOp> functions);

/// Computes matrix products, convolutions and pooling in f32 and rounds the results, if a type is not `supported`.
void widenLibraryOps(mlir::func::FuncOp function, llvm::function_ref<bool(mlir::Type)> supported);

struct SelectOptions {
  /// Matrix products compute relu, gelu (tanh form) and gelu's gradient as epilogues (cuBLASLt), and convolutions with
  /// a bias compute relu (cuDNN). The gradient of a weight also computes the gradient of the bias, if that would
  /// otherwise be a kernel.
  bool epilogues = false;
  /// Convolutions of half operands write the gradients of weights directly in f32, without rounding to half first, as
  /// matrix products always do.
  bool widenConvolutions = false;
  /// Long concatenations become copies of their pieces.
  bool copyPieces = false;
};
/// Replaces matrix products, convolutions, attention and embedding_grad by ops of the library dialect, together with
/// the biases, activations and accumulations that the library computes; then removes unused ops. Pooling and the
/// gradient of a convolution's input stay: export reads the graph op.
void selectLibraryCalls(mlir::func::FuncOp function, SelectOptions options = {});

/// Chooses the library calls of one function for a code target: widens, tidies, selects.
void select(mlir::func::FuncOp function, Target target);

} // namespace cleave::passes
