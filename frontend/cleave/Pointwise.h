// Further elementwise functions: comparisons, logic, selection and activations. They broadcast like the arithmetic
// operators, with the same rules: element types agree (C1), shapes can be broadcast (C2).
#pragma once
#include "cleave/Tensor.h"

namespace cleave {

// ---- comparisons: results are i1 and have no gradient --------------------------------------------------------------

Tensor eq(Operand a, Operand b);
Tensor ne(Operand a, Operand b);
Tensor lt(Operand a, Operand b);
Tensor le(Operand a, Operand b);
Tensor gt(Operand a, Operand b);
Tensor ge(Operand a, Operand b);
/// lt, le, gt and ge as operators. (`==` and `!=` are not overloaded, because they would suggest comparing handles.)
Tensor operator<(Operand a, Operand b);
Tensor operator<=(Operand a, Operand b);
Tensor operator>(Operand a, Operand b);
Tensor operator>=(Operand a, Operand b);
/// Logic on i1 tensors. C1: operands are i1. C2: shapes can be broadcast.
Tensor logicalAnd(Tensor a, Tensor b, Where where = Where::current());
Tensor logicalOr(Tensor a, Tensor b, Where where = Where::current());
Tensor logicalXor(Tensor a, Tensor b, Where where = Where::current());
Tensor logicalNot(Tensor x, Where where = Where::current());
/// i1: true for elements that are NaN, infinite, or neither. C1: x has a float type.
Tensor isnan(Tensor x, Where where = Where::current());
Tensor isinf(Tensor x, Where where = Where::current());
Tensor isfinite(Tensor x, Where where = Where::current());

// ---- choices ------------------------------------------------------------------------------------------------------

/// condition ? a : b. The gradient goes to the selected operand. C1: the types of a and b agree. C2: the three shapes
/// can be broadcast. C3: the condition is i1.
Tensor where(Tensor condition, Operand a, Operand b, Where where = Where::current());
/// `value` where the mask is true, otherwise x. C2: the mask can be broadcast to x. C3: the mask is i1.
Tensor maskedFill(Tensor x, Tensor mask, double value, Where where = Where::current());
/// x limited to [low, high]; to high if the bounds are crossed. NaN stays NaN; a bound may be infinite. x receives the
/// gradient if low < x < high. If a bound is a tensor, the selected operand receives the gradient; if x equals one
/// bound, each receives half, and if it equals both, x receives all. C3: if both bounds are numbers, low <= high.
Tensor clamp(Tensor x, Operand low, Operand high, Where where = Where::current());
/// Identity with zero gradient.
Tensor detach(Tensor x, Where where = Where::current());

// ---- functions. C1: x has a float type ----------------------------------------------------------------------------

/// Radians, accurate for |x| < 1e5.
Tensor sin(Tensor x, Where where = Where::current());
Tensor cos(Tensor x, Where where = Where::current());
Tensor tan(Tensor x, Where where = Where::current());
/// -1, 0 or 1, and 0 for NaN; the gradient is 0.
Tensor sign(Tensor x, Where where = Where::current());
/// log(1 + e^(beta x)) / beta. C2: beta is positive.
Tensor softplus(Tensor x, double beta = 1, Where where = Where::current());
/// x if x > 0, otherwise slope x (Maas et al. 2013).
Tensor leakyRelu(Tensor x, double slope = 0.01, Where where = Where::current());
/// x if x > 0, otherwise alpha (e^x - 1) (Clevert et al. 2016).
Tensor elu(Tensor x, double alpha = 1, Where where = Where::current());
/// Scaled elu, with the constants of Klambauer et al. 2017.
Tensor selu(Tensor x, Where where = Where::current());
/// min(max(x, 0), 6).
Tensor relu6(Tensor x, Where where = Where::current());
/// x relu6(x + 3) / 6 (Howard et al. 2019).
Tensor hardSwish(Tensor x, Where where = Where::current());
/// x tanh(softplus(x)) (Misra 2019).
Tensor mish(Tensor x, Where where = Where::current());
/// log(sigmoid(x)).
Tensor logSigmoid(Tensor x, Where where = Where::current());
/// x if x > 0, otherwise weight x (He et al. 2015). C2: the weight has one element, or one per channel (dimension 1 of
/// x), and x's type.
Tensor prelu(Tensor x, Tensor weight, Where where = Where::current());

} // namespace cleave
