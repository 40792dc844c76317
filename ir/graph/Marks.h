// Marks that the frontend leaves on ops for one pass to read.
#pragma once
#include "llvm/ADT/StringRef.h"

namespace cleave::ir::attr {

/// Unit attribute of a cast to the same type that ends a composition: what comes out is an activation, which mixed
/// precision may take in the half type again. A cast to the same type without it keeps f32 from there on.
inline constexpr llvm::StringLiteral activation = "cleave.activation";
/// Unit attribute of a matrix product that is f32 where its operands are: one with weights that half types would bend.
inline constexpr llvm::StringLiteral single = "cleave.single";

} // namespace cleave::ir::attr
