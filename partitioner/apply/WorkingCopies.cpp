// Which casts and transposes of parameters are made once an iteration.
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

/// The parameter that `value` is; null where it is none.
BlockArgument parameterOf(Value value, std::string &name) {
  auto argument = dyn_cast<BlockArgument>(value);
  if (!argument)
    return {};
  auto function = cast<func::FuncOp>(argument.getOwner()->getParentOp());
  auto text = [&](StringRef key) { return function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), key); };
  auto kind = text(ir::attr::kind), title = text(ir::attr::name);
  if (!kind || !title || kind.getValue() != "parameter")
    return {};
  name = title.str();
  return argument;
}

/// A parameter in a narrower type.
std::string castName(ir::CastOp cast) {
  std::string name;
  BlockArgument argument = parameterOf(cast.getInput(), name);
  Type type = getElementTypeOrSelf(cast.getResult());
  if (!argument || !isa<FloatType>(type) || widthOf(cast.getResult()) >= widthOf(argument))
    return {};
  return name + (type.isBF16() ? ".bf16" : ".f16");
}

/// A convolution's weight channels last, perhaps in a narrower type.
std::string turnedName(ir::TransposeOp transpose) {
  if (llvm::none_of(transpose->getUsers(), [](Operation *user) { return user->hasAttr(ir::channelsLast); }))
    return {};
  std::string name;
  if (auto cast = transpose.getInput().getDefiningOp<ir::CastOp>())
    name = castName(cast);
  else
    parameterOf(transpose.getInput(), name);
  return name.empty() ? name : name + ".nhwc";
}

} // namespace

std::string workingCopyName(Operation *op) {
  if (auto cast = dyn_cast<ir::CastOp>(op))
    return readFromMemory(cast.getResult()) ? castName(cast) : std::string();
  if (auto transpose = dyn_cast<ir::TransposeOp>(op))
    return turnedName(transpose);
  return {};
}

} // namespace cleave::partitioner
