// The library dialect by hand: one op without assembly of its own.
#include "ir/library/Library.h"

using namespace mlir;

namespace cleave::library {

LibraryDialect::LibraryDialect(MLIRContext *context)
    : Dialect(getDialectNamespace(), context, TypeID::get<LibraryDialect>()) {
  addOperations<CallOp>();
}

CallOp CallOp::create(OpBuilder &b, Location location, TypeRange results, ValueRange operands,
                      ArrayRef<NamedAttribute> attributes) {
  OperationState state(location, getOperationName(), operands, results, attributes);
  return cast<CallOp>(b.create(state));
}

llvm::StringRef CallOp::callee() { return (*this)->getAttrOfType<StringAttr>("op").getValue(); }

llvm::ArrayRef<int64_t> CallOp::ints(llvm::StringRef name) {
  return (*this)->getAttrOfType<DenseI64ArrayAttr>(name).asArrayRef();
}

Value CallOp::optionalOperand(llvm::StringRef name) {
  auto index = (*this)->getAttrOfType<IntegerAttr>(name);
  return index ? (*this)->getOperand(static_cast<unsigned>(index.getInt())) : Value();
}

} // namespace cleave::library
