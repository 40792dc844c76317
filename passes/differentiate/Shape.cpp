// Gradient rules of ops that move, repeat, reduce or look up elements.
#include "passes/differentiate/Rules.h"

namespace cleave::passes {
namespace {
using mlir::Value;

void broadcastRule(ir::BroadcastOp op, Grads g, Adjoints &a) {
  a.add(op.getInput(), a.e.sum(g[0], dimsExcept(rankOf(g[0]), op.getDims())));
}

/// A sum passes its gradient to every element; a max or min to the elements equal to the result, in equal shares. If
/// the result is NaN, no element equals it, and the gradient of all is infinity * 0 = NaN.
void reduceRule(ir::ReduceOp op, Grads g, Adjoints &a) {
  GraphBuilder &e = a.e;
  Value x = op.getInput();
  Dims shape = shapeOf(x), dropped = op.getDims();
  if (op.getKind() == ir::ReduceKind::Sum || llvm::all_of(dropped, [&](int64_t dim) { return shape[dim] == 1; }))
    return a.add(x, e.broadcastBack(g[0], shape, dropped));
  Value chosen = e.compare(ir::Predicate::Eq, x, e.broadcastBack(op.getResult(), shape, dropped));
  Value count = e.sum(e.toF32(chosen), dropped); // half types cannot count beyond 256 or 2048
  Value shared = e.cast(e.div(e.toF32(g[0]), count), tensorType(x).getElementType());
  Value share = e.broadcastBack(shared, shape, dropped);
  a.add(x, e.mul(share, e.castLike(chosen, share)));
}

void reshapeRule(ir::ReshapeOp op, Grads g, Adjoints &a) {
  a.add(op.getInput(), a.e.reshape(g[0], shapeOf(op.getInput())));
}

void transposeRule(ir::TransposeOp op, Grads g, Adjoints &a) {
  Dims permutation = op.getPermutation();
  llvm::SmallVector<int64_t> inverse(permutation.size());
  for (auto [i, from] : llvm::enumerate(permutation))
    inverse[from] = i;
  a.add(op.getInput(), a.e.op<ir::TransposeOp>(g[0], Dims(inverse)));
}

void sliceRule(ir::SliceOp op, Grads g, Adjoints &a) {
  llvm::SmallVector<int64_t> high;
  for (auto [size, start, taken] : llvm::zip(shapeOf(op.getInput()), op.getStarts(), op.getSizes()))
    high.push_back(size - start - taken);
  a.add(op.getInput(), a.e.op<ir::PadOp>(g[0], op.getStarts(), Dims(high)));
}

void padRule(ir::PadOp op, Grads g, Adjoints &a) {
  a.add(op.getInput(), a.e.op<ir::SliceOp>(g[0], op.getLow(), shapeOf(op.getInput())));
}

void concatRule(ir::ConcatOp op, Grads g, Adjoints &a) {
  llvm::SmallVector<int64_t> starts(rankOf(g[0]), 0);
  for (Value input : op.getInputs()) {
    a.contribute(input, [&] { return a.e.op<ir::SliceOp>(g[0], Dims(starts), shapeOf(input)).getResult(); });
    starts[op.getDim()] += shapeOf(input)[op.getDim()];
  }
}

void gatherRule(ir::GatherOp op, Grads g, Adjoints &a) {
  a.contribute(op.getInput(), [&] {
    return a.e.op<ir::ScatterAddOp>(op.getInput().getType(), g[0], op.getIndex(), op.getDim()).getResult();
  });
}

void scatterAddRule(ir::ScatterAddOp op, Grads g, Adjoints &a) {
  a.contribute(op.getGrad(), [&] { return a.e.op<ir::GatherOp>(g[0], op.getIndex(), op.getDim()).getResult(); });
}

void embeddingRule(ir::EmbeddingOp op, Grads g, Adjoints &a) {
  a.add(op.getTable(),
        a.e.op<ir::EmbeddingGradOp>(op.getTable().getType(), g[0], op.getIds(), op.getStart()).getResult());
}

} // namespace

void addShapeRules(RuleTable &table) {
  table.on(broadcastRule), table.on(reduceRule), table.on(reshapeRule), table.on(transposeRule);
  table.on(sliceRule), table.on(padRule), table.on(concatRule);
  table.on(gatherRule), table.on(scatterAddRule), table.on(embeddingRule);
}

} // namespace cleave::passes
