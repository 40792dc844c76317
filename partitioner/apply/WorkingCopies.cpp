// Finds the casts and transposes of parameters that are executed once per iteration.
#include "partitioner/apply/WorkingCopies.h"

#include "ir/dist/Dist.h"
#include "ir/library/Epilogues.h"
#include "partitioner/apply/Emit.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

using namespace mlir;

namespace cleave::partitioner {
namespace {

bool readFromMemory(Value value) {
  return llvm::any_of(value.getUsers(), [](Operation *user) {
    if (isa<ir::ReshapeOp, ir::TransposeOp, ir::SliceOp>(user)) // views of the same elements
      return readFromMemory(user->getResult(0));
    return !user->hasTrait<OpTrait::Elementwise>() && !isa<ir::BroadcastOp, ir::ReduceOp, func::ReturnOp>(user);
  });
}

/// Whether a library with epilogues adds the bias to a product or a convolution: it does if an activation that the
/// epilogue supports follows, or if the sum is read from memory. Otherwise a kernel that reads the product adds the
/// bias.
bool addedByLibrary(Value bias) {
  for (Operation *user : bias.getUsers())
    for (Operation *adder : user->getUsers()) {
      auto add = dyn_cast<ir::AddOp>(adder);
      if (!isa<ir::BroadcastOp>(user) || !add ||
          !library::addedBias(add, add.getLhs() == user->getResult(0) ? add.getRhs() : add.getLhs()))
        continue;
      if (readFromMemory(add.getResult()) || llvm::any_of(add.getResult().getUsers(), library::isActivation))
        return true;
    }
  return false;
}

/// The name of the parameter that `value` is, or "" if it is not a parameter.
std::string parameterName(Value value) {
  auto argument = dyn_cast<BlockArgument>(value);
  if (!argument || ir::argumentKind(argument) != ir::SlotKind::Parameter)
    return {};
  return ir::argumentText(argument, ir::attr::name).str();
}

/// The name of a parameter cast to a narrower type; "" for other casts.
std::string castName(ir::CastOp cast) {
  const std::string name = parameterName(cast.getInput());
  Type type = getElementTypeOrSelf(cast.getResult());
  if (name.empty() || !ir::narrows(cast))
    return {};
  return name + (type.isBF16() ? ".bf16" : ".f16");
}

bool isGathered(Operation *op, StringRef how) {
  auto gathered = op ? op->getAttrOfType<StringAttr>(dist::attr::gathered) : nullptr;
  return gathered && gathered.getValue() == how;
}

/// The name of a parameter, possibly in a narrower type, possibly gathered for the iteration.
std::string sourceName(Value value) {
  Operation *def = value.getDefiningOp();
  if (isGathered(def, dist::gatheredForIteration))
    return sourceName(def->getOperand(0));
  auto cast = dyn_cast_if_present<ir::CastOp>(def);
  return cast ? castName(cast) : parameterName(value);
}

/// The name of a convolution weight that `transpose` converts to channels last; "" for other transposes, and for those
/// of a gathered weight: before the first microbatch they would wait for the gather, and all passes for them.
std::string turnedName(ir::TransposeOp transpose) {
  if (isGathered(transpose.getInput().getDefiningOp(), dist::gatheredForIteration) ||
      llvm::none_of(transpose->getUsers(), [](Operation *user) { return user->hasAttr(ir::channelsLast); }))
    return {};
  const std::string name = sourceName(transpose.getInput());
  return name.empty() ? name : name + ".nhwc";
}

} // namespace

std::string workingCopyName(Operation *op) {
  if (auto transpose = dyn_cast<ir::TransposeOp>(op))
    return turnedName(transpose);
  if (isGathered(op, dist::gatheredForIteration))
    return sourceName(op->getOperand(0)) + ".whole";
  auto cast = dyn_cast<ir::CastOp>(op);
  std::string name = cast ? castName(cast) : std::string();
  if (name.empty())
    return {};
  const bool epilogues = op->getParentOfType<ModuleOp>()->hasAttr(ir::attr::epilogues);
  if (!readFromMemory(cast.getResult()) && !(epilogues && addedByLibrary(cast.getResult())))
    return {};
  return name;
}

} // namespace cleave::partitioner
