// Library ops on element types that the library lacks: operands are widened to f32 and the result is rounded. The
// numbers are those of a library that has the type and sums in f32; so a bias is added before the result is rounded.
#include "ir/dist/Dist.h"
#include "ir/graph/Graph.h"
#include "ir/library/Epilogues.h"
#include "passes/rewrite/Values.h"
#include "passes/select/Selection.h"

using namespace mlir;

namespace cleave::passes {

static bool isLibraryOp(Operation *op) {
  return isa<ir::MatmulOp, ir::Conv2dOp, ir::Conv2dInputGradOp, ir::Conv2dWeightGradOp, ir::MaxPool2dOp,
             ir::MaxPool2dGradOp, ir::AvgPool2dOp, ir::AvgPool2dGradOp>(op);
}

void dropShardings(Operation *op) {
  for (StringRef name : {dist::attr::shardings, dist::attr::globals})
    op->removeAttr(name);
}

/// Adds the bias to the product's f32 result and rounds the sum.
static void addBeforeRounding(ir::AddOp add, Value product, Value rounded, GraphBuilder &e) {
  e.setOrigin(add);
  e.builder().setInsertionPoint(add);
  Value bias = e.toF32(add.getLhs() == rounded ? add.getRhs() : add.getLhs());
  Value sum = e.add(product, bias);
  dropShardings(bias.getDefiningOp());
  dropShardings(sum.getDefiningOp());
  add.getResult().replaceAllUsesWith(e.castLike(sum, add.getResult()));
  add.erase();
  rounded.getDefiningOp()->erase();
}

void widenLibraryOps(func::FuncOp function, llvm::function_ref<bool(Type)> supported) {
  SmallVector<Operation *> ops;
  function.walk([&](Operation *op) {
    if (isLibraryOp(op))
      ops.push_back(op);
  });
  OpBuilder builder(function.getContext());
  GraphBuilder e(builder);
  Type single = builder.getF32Type();
  auto lacks = [&](Value value) { return isFloat(value) && !supported(tensorType(value).getElementType()); };
  for (Operation *op : ops) {
    if (llvm::none_of(op->getOperands(), lacks) && llvm::none_of(op->getResults(), lacks))
      continue;
    e.setOrigin(op);
    e.builder().setInsertionPoint(op);
    for (OpOperand &operand : op->getOpOperands())
      if (lacks(operand.get())) {
        operand.set(e.cast(operand.get(), single));
        dropShardings(operand.get().getDefiningOp());
      }
    e.builder().setInsertionPointAfter(op);
    for (Value result : op->getResults()) {
      if (!isFloat(result))
        continue;
      Type narrow = tensorType(result).getElementType();
      result.setType(tensorType(result).clone(single));
      if (narrow == single)
        continue;
      auto add = result.hasOneUse() ? dyn_cast<ir::AddOp>(*result.user_begin()) : ir::AddOp();
      const bool biased = add && library::addedBias(add, result);
      Value rounded = e.cast(result, narrow);
      result.replaceAllUsesExcept(rounded, rounded.getDefiningOp());
      if (biased)
        addBeforeRounding(add, result, rounded, e);
    }
  }
}

} // namespace cleave::passes
