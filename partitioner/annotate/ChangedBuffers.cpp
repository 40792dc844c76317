// Copies buffers whose old value the backward pass reads after the forward pass has changed them.
#include "ir/graph/Graph.h"
#include "partitioner/annotate/AnnotateStep.h"
#include "partitioner/annotate/Rematerialised.h"

using namespace mlir;

namespace cleave::partitioner {

// Whether the backward pass reads the value, directly or through rematerialised ops.
static bool isReadBackward(Value value) {
  return llvm::any_of(value.getUsers(), [](Operation *user) {
    return user->hasAttr(ir::attr::phase) || (isRematerialised(user, false) && isReadBackward(user->getResult(0)));
  });
}

static bool isChanged(func::FuncOp train, BlockArgument buffer) {
  const StringRef name = ir::argumentText(buffer, ir::attr::name);
  for (OpOperand &result : train.getBody().front().getTerminator()->getOpOperands())
    if (ir::resultKind(train, result.getOperandNumber()) == ir::SlotKind::Buffer &&
        ir::resultText(train, result.getOperandNumber(), ir::attr::name) == name)
      return result.get() != buffer;
  return false;
}

void keepChangedBuffers(func::FuncOp train) {
  for (BlockArgument argument : train.getArguments()) {
    if (ir::argumentKind(argument) != ir::SlotKind::Buffer || !isChanged(train, argument) || !isReadBackward(argument))
      continue;
    Operation *first = nullptr;
    for (Operation *user : argument.getUsers())
      if (!first || user->isBeforeInBlock(first))
        first = user;
    // The product with 1 is an ordinary value, which is stashed if the backward pass needs it.
    OpBuilder builder(first);
    Value one = ir::splatConstant(builder, first->getLoc(), cast<RankedTensorType>(argument.getType()), 1);
    auto copy = ir::MulOp::create(builder, first->getLoc(), argument, one);
    for (Operation *op : {one.getDefiningOp(), copy.getOperation()}) {
      ir::copyMarks(first, op);
      op->removeAttr(ir::attr::phase);
    }
    argument.replaceAllUsesExcept(copy.getResult(), copy);
  }
}

} // namespace cleave::partitioner
