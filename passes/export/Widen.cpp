// Library ops on element types that the library lacks: operands are widened to f32 and the result is rounded, so that
// the numbers are those of the half type with sums in f32.
#include "ir/dist/Dist.h"
#include "ir/graph/Graph.h"
#include "passes/export/Select.h"
#include "passes/rewrite/Emitter.h"

using namespace mlir;

namespace cleave::passes {

static bool isLibraryOp(Operation *op) {
  return isa<ir::MatmulOp, ir::Conv2dOp, ir::Conv2dInputGradOp, ir::Conv2dWeightGradOp, ir::MaxPool2dOp,
             ir::MaxPool2dGradOp, ir::AvgPool2dOp, ir::AvgPool2dGradOp>(op);
}

void widenLibraryOps(func::FuncOp function, llvm::function_ref<bool(Type)> supported) {
  SmallVector<Operation *> ops;
  function.walk([&](Operation *op) {
    if (isLibraryOp(op))
      ops.push_back(op);
  });
  OpBuilder builder(function.getContext());
  Emitter e(builder);
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
        for (StringRef name : {dist::attr::shardings, dist::attr::globals}) // those are of the op's result
          operand.get().getDefiningOp()->removeAttr(name);
      }
    e.builder().setInsertionPointAfter(op);
    for (Value result : op->getResults()) {
      if (!isFloat(result))
        continue;
      Type narrow = tensorType(result).getElementType();
      result.setType(tensorType(result).clone(single));
      if (narrow == single)
        continue;
      Value rounded = e.cast(result, narrow);
      result.replaceAllUsesExcept(rounded, rounded.getDefiningOp());
    }
  }
}

} // namespace cleave::passes
