// Rematerialises free ops in the stage of each user. This runs before differentiation, so that the gradients of the
// copies are also computed and added in the user's stage.
#include "partitioner/stages/Layers.h"

#include "ir/graph/Graph.h"

#include <map>

using namespace mlir;

namespace cleave::partitioner {
namespace {

// Whether the value is an input or a parameter, looking through rematerialised ops.
bool isOfArgument(Value value) {
  if (auto argument = dyn_cast<BlockArgument>(value))
    return ir::argumentKind(argument) != ir::SlotKind::Buffer; // a buffer belongs to one stage
  Operation *def = value.getDefiningOp();
  return isView(def) && isOfArgument(def->getOperand(0));
}

bool isOfBuffer(Value value) {
  if (auto argument = dyn_cast<BlockArgument>(value))
    return ir::argumentKind(argument) == ir::SlotKind::Buffer;
  Operation *def = value.getDefiningOp();
  return isa<ir::ReshapeOp, ir::TransposeOp, ir::BroadcastOp, ir::ShardHintOp>(def) && isOfBuffer(def->getOperand(0));
}

// Whether the value depends only on constants and indices (a mask).
bool isOfConstants(Operation *op) {
  if (isa<ir::ConstantOp, ir::IotaOp>(op))
    return true;
  return (op->hasTrait<OpTrait::Elementwise>() || isa<ir::BroadcastOp, ir::ReshapeOp, ir::TransposeOp>(op)) &&
         llvm::all_of(op->getOperands(), [](Value v) { return v.getDefiningOp() && isOfConstants(v.getDefiningOp()); });
}

bool isFreeToRematerialise(Operation *op) {
  if (isa<ir::BroadcastOp, ir::ReshapeOp, ir::TransposeOp, ir::ShardHintOp>(op))
    return !isOfBuffer(op->getOperand(0));
  if (isa<ir::CastOp, ir::SliceOp>(op) && isOfArgument(op->getOperand(0)))
    return true;
  return isOfConstants(op);
}

/// Whether a cast reads a value that another op of `stage` reads, too, and that is sent there in any case.
bool isOfSentValue(Operation *op, int64_t stage) {
  return isa<ir::CastOp>(op) && llvm::any_of(op->getOperand(0).getUsers(), [&](Operation *user) {
           return user != op && !isa<func::ReturnOp>(user) && ir::stageOf(user) == stage;
         });
}

void rematerialise(Operation *op) {
  std::map<int64_t, SmallVector<OpOperand *>> uses;
  const bool everywhere = isFreeToRematerialise(op);
  bool here = false;
  for (OpOperand &use : op->getUses())
    if (isa<func::ReturnOp>(use.getOwner()) || ir::stageOf(use.getOwner()) == ir::stageOf(op) ||
        !(everywhere || isOfSentValue(op, ir::stageOf(use.getOwner()))))
      here = true;
    else
      uses[ir::stageOf(use.getOwner())].push_back(&use);
  for (auto &[stage, operands] : uses) {
    Operation *first = operands.front()->getOwner();
    for (OpOperand *operand : operands)
      if (operand->getOwner()->isBeforeInBlock(first))
        first = operand->getOwner();
    OpBuilder builder(first);
    Operation *copy = builder.clone(*op);
    copy->setAttr(ir::attr::stage, builder.getI64IntegerAttr(stage));
    for (OpOperand *operand : operands)
      operand->set(copy->getResult(0));
  }
  if (!here && !uses.empty())
    op->erase();
}

} // namespace

void rematerialiseInStagesOfUsers(func::FuncOp func) {
  SmallVector<Operation *> ops;
  for (Operation &op : func.getBody().front().without_terminator())
    ops.push_back(&op);
  for (Operation *op : llvm::reverse(ops)) // a copy's operands are visited after it
    rematerialise(op);
}

} // namespace cleave::partitioner
