// Attributes that the frontend sets on ops, each read by one pass.
#pragma once
#include "llvm/ADT/StringRef.h"

namespace cleave::ir::attr {

/// Unit attribute of a cast to the same type at the end of a composite: the result is an activation, which mixed
/// precision may store in the half type. A same-type cast without this attribute keeps f32 from there on.
inline constexpr llvm::StringLiteral activation = "cleave.activation";
/// Unit attribute of a matrix product that stays f32 if its operands are f32, because half precision would distort
/// its weights.
inline constexpr llvm::StringLiteral single = "cleave.single";

} // namespace cleave::ir::attr
