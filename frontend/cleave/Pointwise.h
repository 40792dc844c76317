// Elementwise functions beside those of Functional.h: comparisons, logic, choices and activations. Broadcast as the
// arithmetic operators do, with their rules: element types agree (C1), shapes can be broadcast (C2).
#pragma once
#include "cleave/Tensor.h"

namespace cleave {

// ---- comparisons: results are i1, and no gradient passes them ------------------------------------------------------

Tensor eq(Operand a, Operand b);
Tensor ne(Operand a, Operand b);
Tensor lt(Operand a, Operand b);
Tensor le(Operand a, Operand b);
Tensor gt(Operand a, Operand b);
Tensor ge(Operand a, Operand b);
/// The same as operators. (`==` and `!=` are left out: handles are not compared by value.)
Tensor operator<(Operand a, Operand b);
Tensor operator<=(Operand a, Operand b);
Tensor operator>(Operand a, Operand b);
Tensor operator>=(Operand a, Operand b);
/// Of i1. C1: operands are i1. C2: shapes can be broadcast.
Tensor logicalAnd(Tensor a, Tensor b, Where where = Where::current());
Tensor logicalOr(Tensor a, Tensor b, Where where = Where::current());
Tensor logicalXor(Tensor a, Tensor b, Where where = Where::current());
Tensor logicalNot(Tensor x, Where where = Where::current());
/// Where x is no number. C1: x's elements are of a float type.
Tensor isnan(Tensor x, Where where = Where::current());

// ---- choices ------------------------------------------------------------------------------------------------------

/// condition ? a : b. The gradient goes to what was chosen. C1: the types of a and b agree. C2: the three shapes can be
/// broadcast. C3: the condition is i1.
Tensor where(Tensor condition, Operand a, Operand b, Where where = Where::current());
/// x, but `value` where the mask holds. C2: the mask can be broadcast to x. C3: the mask is i1.
Tensor maskedFill(Tensor x, Tensor mask, double value, Where where = Where::current());
/// x limited to [low, high]; NaN stays, and a bound may be an infinity. The gradient passes where low < x < high; of
/// bounds that are tensors it goes to the one that was taken, half of it where x is equal. C3: of two numbers, low is
/// not larger than high.
Tensor clamp(Tensor x, Operand low, Operand high, Where where = Where::current());
/// The identity for values; no gradient passes.
Tensor detach(Tensor x, Where where = Where::current());

// ---- functions. C1: x's elements are of a float type
// -----------------------------------------------------------------

/// Radians, accurate for |x| < 1e5.
Tensor sin(Tensor x, Where where = Where::current());
Tensor cos(Tensor x, Where where = Where::current());
/// -1, 0 or 1, and 0 for NaN; the gradient is 0.
Tensor sign(Tensor x, Where where = Where::current());
/// log(1 + e^(beta x)) / beta. C2: beta is positive.
Tensor softplus(Tensor x, double beta = 1, Where where = Where::current());
/// x where it is positive, slope x elsewhere.
Tensor leakyRelu(Tensor x, double slope = 0.01, Where where = Where::current());
/// x where it is positive, alpha (e^x - 1) elsewhere (Clevert et al. 2016).
Tensor elu(Tensor x, double alpha = 1, Where where = Where::current());

} // namespace cleave
