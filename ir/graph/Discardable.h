// Verifies the attributes that a dialect declares (discardableAttrs in its .td) for ops and functions of any dialect.
// Constraints: (C1) the dialect declares the attribute. (C2) It may be where it is. (C3) It has its type; integers are i64,
// numbers f64.
#pragma once
#include "mlir/IR/Operation.h"

#include <utility>

namespace cleave::ir {

/// Where an attribute may be; several are joined by `|`.
enum Place : uint8_t { OnOp = 1, OnFunction = 2, OnModule = 4, OnArgument = 8, OnResult = 16 };

struct Discardable {
  llvm::StringRef name;
  unsigned places;
  bool (*isType)(mlir::Attribute);
};

bool isI64(mlir::Attribute attribute);
bool isF64(mlir::Attribute attribute);

/// An attribute by the helper class that the .td file's declaration generates, which knows name and type.
template <class Helper> Discardable discardable(unsigned places) {
  using Type = decltype(std::declval<Helper>().getAttr(nullptr));
  if constexpr (std::is_same_v<Type, mlir::IntegerAttr>)
    return {Helper::getNameStr(), places, isI64};
  else if constexpr (std::is_same_v<Type, mlir::FloatAttr>)
    return {Helper::getNameStr(), places, isF64};
  else
    return {Helper::getNameStr(), places, [](mlir::Attribute attribute) { return mlir::isa<Type>(attribute); }};
}

/// `op`: the one that carries the attribute, or the function of the argument or result. Reports at it.
mlir::LogicalResult verifyDiscardable(mlir::Operation *op, mlir::NamedAttribute attribute, Place place,
                                      llvm::ArrayRef<Discardable> declared);

/// The place of an op's own attributes.
Place placeOf(mlir::Operation *op);

} // namespace cleave::ir
