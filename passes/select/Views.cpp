// Operands of library calls as strided views of the tensor behind reshapes, transposes, slices and broadcasts.
#include "passes/select/Selection.h"

using namespace mlir;

namespace cleave::passes {

namespace {

/// The operand of a view op; null if `value` has memory of its own.
Value shownBy(Value value) {
  Operation *op = value.getDefiningOp();
  if (op && isa<ir::ReshapeOp, ir::TransposeOp, ir::SliceOp, ir::BroadcastOp, ir::ShardHintOp>(op))
    return op->getOperand(0);
  return {};
}

std::optional<Strided> throughOp(const Strided &view, Value result) {
  Operation *op = result.getDefiningOp();
  if (auto transpose = dyn_cast<ir::TransposeOp>(op))
    return view.transposed(transpose.getPermutation());
  if (auto slice = dyn_cast<ir::SliceOp>(op))
    return view.sliced(slice.getStarts(), slice.getSizes());
  if (auto broadcast = dyn_cast<ir::BroadcastOp>(op))
    return view.broadcast(broadcast.getDims(), sizesOf(result));
  if (isa<ir::ShardHintOp>(op))
    return view;
  return view.reshaped(sizesOf(result));
}

} // namespace

OperandView farthestView(Value operand, llvm::function_ref<std::optional<Strided>(Strided)> accept) {
  SmallVector<Value> chain{operand};
  while (Value next = shownBy(chain.back()))
    chain.push_back(next);
  for (size_t depth = chain.size(); depth-- > 0;) {
    std::optional<Strided> view = Strided::contiguous(sizesOf(chain[depth]));
    for (size_t i = depth; i-- > 0 && view;)
      view = throughOp(*view, chain[i]);
    if (view)
      view = accept(*view);
    if (view)
      return {chain[depth], *view};
  }
  llvm_unreachable("a tensor's own memory always fits");
}

std::optional<Strided> beforeOp(const Strided &view, Operation *op) {
  if (auto transpose = dyn_cast<ir::TransposeOp>(op))
    return view.beforeTranspose(transpose.getPermutation());
  return view.reshaped(sizesOf(op->getOperand(0)));
}

SmallVector<Operation *> renamingsOf(Value result) {
  SmallVector<Operation *> chain;
  while (result.hasOneUse() && isa<ir::ReshapeOp, ir::TransposeOp>(*result.getUsers().begin())) {
    chain.push_back(*result.getUsers().begin());
    result = chain.back()->getResult(0);
  }
  return chain;
}

std::optional<Strided> beforeAll(const Strided &view, ArrayRef<Operation *> renamings) {
  std::optional<Strided> found = view;
  for (Operation *op : llvm::reverse(renamings))
    if (found)
      found = beforeOp(*found, op);
  return found;
}

OperandView farthestResult(Value result, llvm::function_ref<bool(const Strided &)> accept) {
  for (SmallVector<Operation *> chain = renamingsOf(result); !chain.empty(); chain.pop_back()) {
    Value last = chain.back()->getResult(0);
    if (auto view = beforeAll(Strided::contiguous(sizesOf(last)), chain); view && accept(*view))
      return {last, *view};
  }
  return {result, Strided::contiguous(sizesOf(result))};
}

Strided pieceView(const Strided &whole, ir::ConcatOp concat, unsigned piece) {
  Sizes starts(whole.shape.size(), 0);
  for (unsigned i = 0; i < piece; ++i)
    starts[concat.getDim()] += sizesOf(concat.getInputs()[i])[concat.getDim()];
  return whole.sliced(starts, sizesOf(concat.getInputs()[piece]));
}

} // namespace cleave::passes
