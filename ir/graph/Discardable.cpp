// Verifies discardable attributes.
#include "ir/graph/Discardable.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;

namespace cleave::ir {

bool isI64(Attribute attribute) {
  auto integer = dyn_cast<IntegerAttr>(attribute);
  return integer && integer.getType().isSignlessInteger(64);
}
bool isF64(Attribute attribute) {
  auto number = dyn_cast<FloatAttr>(attribute);
  return number && number.getType().isF64();
}

Place placeOf(Operation *op) {
  return isa<ModuleOp>(op) ? OnModule : isa<FunctionOpInterface>(op) ? OnFunction : OnOp;
}

static const char *nameOf(Place place) {
  switch (place) {
  case OnOp:
    return "an op";
  case OnFunction:
    return "a function";
  case OnModule:
    return "a module";
  case OnArgument:
    return "an argument";
  case OnResult:
    return "a result";
  }
  llvm_unreachable("place");
}

LogicalResult verifyDiscardable(Operation *op, NamedAttribute attribute, Place place, ArrayRef<Discardable> declared) {
  const auto *found =
      llvm::find_if(declared, [&](const Discardable &one) { return one.name == attribute.getName().getValue(); });
  if (found == declared.end())
    return op->emitError("C1: ") << attribute.getName() << " is no attribute of its dialect";
  if (!(found->places & place))
    return op->emitError("C2: ") << attribute.getName() << " is on " << nameOf(place);
  if (!found->isType(attribute.getValue()))
    return op->emitError("C3: ") << attribute.getName() << " has another type: " << attribute.getValue();
  return success();
}

} // namespace cleave::ir
