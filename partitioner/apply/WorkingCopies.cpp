// Which casts of parameters are made once an iteration.
#include "partitioner/apply/WorkingCopies.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;

namespace cleave::partitioner {
namespace {

bool readFromMemory(Value value) {
  return llvm::any_of(value.getUsers(), [](Operation *user) {
    if (isa<ir::ReshapeOp, ir::TransposeOp, ir::SliceOp>(user)) // the same elements
      return readFromMemory(user->getResult(0));
    return !user->hasTrait<OpTrait::Elementwise>() && !isa<ir::BroadcastOp, ir::ReduceOp, func::ReturnOp>(user);
  });
}

unsigned widthOf(Value value) { return cast<RankedTensorType>(value.getType()).getElementTypeBitWidth(); }

} // namespace

std::string workingCopyName(Operation *op) {
  auto cast = dyn_cast<ir::CastOp>(op);
  auto argument = cast ? dyn_cast<BlockArgument>(cast.getInput()) : BlockArgument();
  if (!argument)
    return {};
  auto function = mlir::cast<func::FuncOp>(argument.getOwner()->getParentOp());
  auto text = [&](StringRef key) { return function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), key); };
  auto kind = text(ir::attr::kind), name = text(ir::attr::name);
  Type type = getElementTypeOrSelf(cast.getResult());
  if (!kind || !name || kind.getValue() != "parameter" || !isa<FloatType>(type) ||
      widthOf(cast.getResult()) >= widthOf(argument) || !readFromMemory(cast.getResult()))
    return {};
  return name.str() + (type.isBF16() ? ".bf16" : ".f16");
}

} // namespace cleave::partitioner
