// What the files of library selection share.
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

/// Gives `call` the path, stage, phase and shardings of the graph op that it computes.
void carryMarks(mlir::Operation *op, mlir::Operation *call);
/// Gives `call`, whose results replace these values, their shardings.
void carryShardings(llvm::ArrayRef<mlir::Value> results, mlir::Operation *call);

struct OperandView {
  mlir::Value base;
  Strided view;
};
/// The operand as a window onto the farthest memory behind it whose view `accept` takes (and may change).
OperandView farthestView(mlir::Value operand, llvm::function_ref<std::optional<Strided>(Strided)> accept);
/// How the operand of a transpose or a reshape lies in memory where its result lies as `view`; empty where it has no
/// strides.
std::optional<Strided> beforeOp(const Strided &view, mlir::Operation *op);
/// The reshapes and transposes after `result`, each the only use of what came before.
llvm::SmallVector<mlir::Operation *> renamingsOf(mlir::Value result);
/// How a value lies in memory where the last of these renamings of it lies as `view`; empty where it has no strides.
std::optional<Strided> beforeAll(const Strided &view, llvm::ArrayRef<mlir::Operation *> renamings);
/// The result as a window onto the memory of its farthest renaming where its view is one that `accept` takes.
OperandView farthestResult(mlir::Value result, llvm::function_ref<bool(const Strided &)> accept);
/// A piece of a concatenation in the memory of the whole.
Strided pieceView(const Strided &whole, ir::ConcatOp concat, unsigned piece);

/// Where all that happens to `result` is that it is added to a gradient argument, which is returned: the add, the
/// argument.
std::pair<mlir::Operation *, mlir::Value> onlyAccumulation(mlir::Value result);

/// Concatenations some pieces of which are written in place: piece -> call.
using WrittenPieces = std::map<mlir::Operation *, std::map<unsigned, mlir::Operation *>>;
void selectProduct(ir::MatmulOp matmul, WrittenPieces &concats, SelectOptions options);

/// What attention asks of a view of [batch, heads, rows, width].
bool fitHeads(const Strided &view);
void selectAttention(ir::AttentionOp attention);
void selectAttention(ir::AttentionGradOp gradient);

} // namespace cleave::passes
