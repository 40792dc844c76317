// Tidying before selection: sums of padded pieces (gradients of slices) become concatenations.
#include "passes/select/Selection.h"
#include "passes/simplify/Simplify.h"

#include "llvm/ADT/DenseSet.h"

#include <algorithm>

using namespace mlir;

namespace cleave::passes {

namespace {

/// Sums of pads only. Other sums, such as a chain of additions over all parameters, are skipped.
llvm::DenseSet<Value> sumsOfPads(ArrayRef<ir::AddOp> adds) {
  llvm::DenseSet<Value> found;
  auto padded = [&](Value value) { return value.getDefiningOp<ir::PadOp>() || found.contains(value); };
  for (ir::AddOp add : adds)
    if (padded(add.getLhs()) && padded(add.getRhs()))
      found.insert(add.getResult());
  return found;
}

/// The only dimension that a pad extends; -1 if there are several or none.
int64_t paddedDim(ir::PadOp pad) {
  int64_t found = -1;
  for (auto [d, amounts] : llvm::enumerate(llvm::zip(pad.getLow(), pad.getHigh())))
    if (std::get<0>(amounts) || std::get<1>(amounts)) {
      if (found >= 0)
        return -1;
      found = static_cast<int64_t>(d);
    }
  return found;
}

/// The pads in order, if together they fill the whole along one dimension; empty otherwise.
SmallVector<ir::PadOp> tiling(ArrayRef<Value> leaves, int64_t &dim) {
  SmallVector<ir::PadOp> pads;
  for (Value leaf : leaves) {
    auto pad = leaf.getDefiningOp<ir::PadOp>();
    if (!pad || paddedDim(pad) < 0 || (!pads.empty() && paddedDim(pad) != dim))
      return {};
    dim = paddedDim(pad);
    pads.push_back(pad);
  }
  llvm::sort(pads, [&](ir::PadOp a, ir::PadOp b) { return a.getLow()[dim] < b.getLow()[dim]; });
  int64_t at = 0;
  for (ir::PadOp pad : pads) {
    if (pad.getLow()[dim] != at)
      return {};
    at += cast<RankedTensorType>(pad.getInput().getType()).getDimSize(dim);
  }
  if (at != cast<RankedTensorType>(leaves[0].getType()).getDimSize(dim))
    return {};
  return pads;
}

} // namespace

SmallVector<Value> addends(ir::AddOp sum) {
  SmallVector<Value> leaves, next{sum.getRhs(), sum.getLhs()};
  while (!next.empty()) {
    Value value = next.pop_back_val();
    auto add = value.getDefiningOp<ir::AddOp>();
    if (add && value.hasOneUse())
      next.append({add.getRhs(), add.getLhs()});
    else
      leaves.push_back(value);
  }
  return leaves;
}

void joinPads(func::FuncOp function) {
  SmallVector<ir::AddOp> adds;
  function.walk([&](ir::AddOp add) { adds.push_back(add); });
  const llvm::DenseSet<Value> padded = sumsOfPads(adds);
  for (ir::AddOp add : llvm::reverse(adds)) { // the top of a tree comes first
    if (!padded.contains(add.getResult()))
      continue;
    const SmallVector<Value> leaves = addends(add);
    int64_t dim = -1;
    SmallVector<ir::PadOp> pads = tiling(leaves, dim);
    if (pads.empty())
      continue;
    OpBuilder b(add);
    SmallVector<Value> pieces;
    for (ir::PadOp pad : pads)
      pieces.push_back(pad.getInput());
    auto concat = ir::ConcatOp::create(b, add.getLoc(), add.getType(), pieces, b.getI64IntegerAttr(dim));
    concat->setDiscardableAttrs(add->getDiscardableAttrDictionary());
    add.getResult().replaceAllUsesWith(concat.getResult());
  }
  eraseDeadOps(function);
}

} // namespace cleave::passes
