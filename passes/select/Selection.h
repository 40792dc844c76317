// Declarations that the files of library selection share.
#pragma once
#include "ir/dist/Dist.h"
#include "ir/graph/Graph.h"
#include "ir/library/Epilogues.h"
#include "ir/library/Library.h"
#include "passes/select/Select.h"

#include <map>

namespace cleave::passes {

using library::Product;
using library::Sizes;
using library::Strided;

Sizes sizesOf(mlir::Value value);
bool definedBefore(mlir::Value value, mlir::Operation *op);

/// The leaves of a tree of additions whose inner sums have no other use, in order.
llvm::SmallVector<mlir::Value> addends(ir::AddOp sum);

/// Gives `call` the path, stage, phase and shardings of the graph op that it computes.
void carryMarks(mlir::Operation *op, mlir::Operation *call);

struct OperandView {
  mlir::Value base;
  Strided view;
};
/// Follows the operand back through reshapes, transposes, slices and broadcasts to the farthest tensor that a call can
/// read instead: one whose view `accept` accepts. `accept` may change the view.
OperandView farthestView(mlir::Value operand, llvm::function_ref<std::optional<Strided>(Strided)> accept);
/// The view of a transpose's or reshape's operand, given the view of its result; empty if the operand cannot be
/// described by strides.
std::optional<Strided> beforeOp(const Strided &view, mlir::Operation *op);
/// The chain of reshapes and transposes after `result`; each is the only use of the one before.
llvm::SmallVector<mlir::Operation *> renamingsOf(mlir::Value result);
/// The view of a value, given the view of the last of its renamings; empty if it cannot be described by strides.
std::optional<Strided> beforeAll(const Strided &view, llvm::ArrayRef<mlir::Operation *> renamings);
/// The farthest renaming of `result` that a call can write instead, and the view of `result` in its memory.
OperandView farthestResult(mlir::Value result, llvm::function_ref<bool(const Strided &)> accept);
/// A piece of a concatenation in the memory of the whole.
Strided pieceView(const Strided &whole, ir::ConcatOp concat, unsigned piece);

/// If the only use of `result` is to be added to a gradient argument and returned: the add and the argument.
std::pair<mlir::Operation *, mlir::Value> onlyAccumulation(mlir::Value result);

/// Whether this is a cast of a half product to f32 that is returned or added to the gradient so far. The library's sums
/// are f32, so it can write them without the rounding. (A cast that a kernel reads costs nothing there.)
bool isWidening(mlir::Operation *op);
/// Removes the shardings of an op whose result is no longer what they describe.
void dropShardings(mlir::Operation *op);

/// By concatenation and number of the piece: the call that writes the piece in place.
using WrittenPieces = std::map<mlir::Operation *, std::map<unsigned, mlir::Operation *>>;
void selectProduct(ir::MatmulOp matmul, WrittenPieces &concats, SelectOptions options);

/// Whether attention can read or write this view of [batch, heads, rows, width].
bool fitHeads(const Strided &view);
void selectAttention(ir::AttentionOp attention);
void selectAttention(ir::AttentionGradOp gradient);

} // namespace cleave::passes
