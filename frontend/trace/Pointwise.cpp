// Comparisons, logic, selection and activations, composed of compare, select and arithmetic.
#include "cleave/Pointwise.h"
#include "frontend/trace/Compose.h"
#include "frontend/trace/Diagnose.h"

#include <cmath>
#include <fmt/format.h>
#include <tuple>

namespace cleave {

using namespace ir;
using mlir::Value;

// ---- comparisons and logic ----------------------------------------------------------------------------------------

static Tensor compared(const char *name, Predicate predicate, const Operand &a, const Operand &b) {
  auto [x, y] = bothSides(name, a, b, a.where);
  return tensorOf(Ops(name, a.where).compare(predicate, x, y));
}

Tensor eq(Operand a, Operand b) { return compared("eq", Predicate::Eq, a, b); }
Tensor ne(Operand a, Operand b) { return compared("ne", Predicate::Ne, a, b); }
Tensor lt(Operand a, Operand b) { return compared("lt", Predicate::Lt, a, b); }
Tensor le(Operand a, Operand b) { return compared("le", Predicate::Le, a, b); }
Tensor gt(Operand a, Operand b) { return compared("gt", Predicate::Gt, a, b); }
Tensor ge(Operand a, Operand b) { return compared("ge", Predicate::Ge, a, b); }
Tensor operator<(Operand a, Operand b) { return lt(a, b); }
Tensor operator<=(Operand a, Operand b) { return le(a, b); }
Tensor operator>(Operand a, Operand b) { return gt(a, b); }
Tensor operator>=(Operand a, Operand b) { return ge(a, b); }

static std::pair<Value, Value> booleans(const char *name, Tensor a, Tensor b, Where where) {
  Trace::current(name, where);
  if (a.dtype() != DType::I1 || b.dtype() != DType::I1)
    failRule(name, 1, "operands must be i1, such as the result of a comparison", {fact(a, "left"), fact(b, "right")},
             where);
  return bothSides(name, Operand(a, where), Operand(b, where), where);
}

Tensor logicalAnd(Tensor a, Tensor b, Where where) {
  auto [x, y] = booleans("logicalAnd", a, b, where);
  return tensorOf(Ops("logicalAnd", where).min(x, y));
}
Tensor logicalOr(Tensor a, Tensor b, Where where) {
  auto [x, y] = booleans("logicalOr", a, b, where);
  return tensorOf(Ops("logicalOr", where).max(x, y));
}
Tensor logicalXor(Tensor a, Tensor b, Where where) {
  auto [x, y] = booleans("logicalXor", a, b, where);
  return tensorOf(Ops("logicalXor", where).compare(Predicate::Ne, x, y));
}
Tensor logicalNot(Tensor x, Where where) {
  Ops ops("logicalNot", where);
  if (x.dtype() != DType::I1)
    failRule("logicalNot", 1, "the operand must be i1, such as the result of a comparison", {fact(x, "input")}, where);
  return tensorOf(ops.compare(Predicate::Eq, valueOf(x), 0));
}

Tensor isnan(Tensor x, Where where) {
  Ops ops("isnan", where);
  checkFloat("isnan", 1, x, where);
  return tensorOf(ops.compare(Predicate::Ne, valueOf(x), valueOf(x)));
}

Tensor isinf(Tensor x, Where where) {
  Ops ops("isinf", where);
  checkFloat("isinf", 1, x, where);
  return tensorOf(ops.compare(Predicate::Eq, ops.abs(valueOf(x)), INFINITY));
}

Tensor isfinite(Tensor x, Where where) {
  Ops ops("isfinite", where);
  checkFloat("isfinite", 1, x, where);
  return tensorOf(ops.compare(Predicate::Lt, ops.abs(valueOf(x)), INFINITY));
}

// ---- choices ------------------------------------------------------------------------------------------------------

static void checkCondition(const char *name, Tensor condition, const char *role, Where where) {
  if (condition.dtype() != DType::I1)
    failRule(name, 3, fmt::format("the {} must be i1, such as the result of a comparison", role),
             {fact(condition, role)}, where);
}

Tensor where(Tensor condition, Operand a, Operand b, Where where) {
  Ops ops("where", where);
  checkCondition("where", condition, "condition", where);
  if (!a.tensor.defined() && !b.tensor.defined())
    a = Operand(tensorOf(ops.constant(ops.trace.type({}, ops.trace.element(DType::F32)), a.number)), where);
  auto [x, y] = bothSides("where", a, b, where);
  const auto shape = commonShape(condition.shape(), Ops::shape(x));
  if (!shape)
    failRule("where", 2,
             fmt::format("shapes {} and {} cannot be broadcast to each other", shapeText(condition.shape()),
                         shapeText(Ops::shape(x))),
             {fact(condition, "condition"), fact(tensorOf(x), "value")}, where);
  return tensorOf(
      ops.select(ops.broadcastTo(valueOf(condition), *shape), ops.broadcastTo(x, *shape), ops.broadcastTo(y, *shape)));
}

Tensor maskedFill(Tensor x, Tensor mask, double value, Where where) {
  Ops ops("maskedFill", where);
  checkCondition("maskedFill", mask, "mask", where);
  if (!isFloat(x) && value != std::trunc(value))
    failRule("maskedFill", 1, fmt::format("the tensor has integer elements, but {} is not an integer", value),
             {fact(x, "input")}, where);
  if (commonShape(mask.shape(), x.shape()) != x.shape())
    failRule("maskedFill", 2, "the mask cannot be broadcast to the input", {fact(x, "input"), fact(mask, "mask")},
             where);
  Value chosen = ops.broadcastTo(valueOf(mask), x.shape());
  return tensorOf(ops.select(chosen, ops.constantLike(valueOf(x), value), valueOf(x)));
}

/// x between two bounds of which at least one is a tensor. The operand that is the result receives the gradient. If x
/// equals one bound, both receive half; if it equals both, or if an operand is NaN, x receives what is its own.
static Value between(Ops &ops, Value x, Value low, Value high) {
  Value below = ops.compare(Predicate::Lt, x, low), above = ops.compare(Predicate::Gt, x, high);
  Value outside = ops.max(below, above);
  Value atOne = ops.max(ops.compare(Predicate::Eq, x, low), ops.compare(Predicate::Eq, x, high));
  atOne = ops.min(atOne, ops.compare(Predicate::Lt, low, high));
  Value inside = ops.select(atOne, ops.min(ops.max(x, low), high), x);
  Value lower = ops.min(below, ops.compare(Predicate::Le, low, high)); // if the bounds are crossed, it is the upper one
  Value result = ops.select(outside, ops.select(lower, low, high), inside);
  if (!isFloat(tensorOf(x)))
    return result;
  Value nan = ops.max(ops.compare(Predicate::Ne, low, low), ops.compare(Predicate::Ne, high, high));
  Value own = ops.select(outside, ops.constantLike(x, 0), x);
  return ops.select(nan, ops.add(own, ops.constantLike(x, NAN)), result);
}

Tensor clamp(Tensor x, Operand low, Operand high, Where where) {
  Ops ops("clamp", where);
  if (!low.tensor.defined() && !high.tensor.defined() && !(low.number <= high.number))
    failRule("clamp", 3, fmt::format("the lower bound {} is larger than the upper {}", low.number, high.number),
             {fact(x, "input")}, where);
  const bool limitsBelow = low.tensor.defined() || low.number != -INFINITY,
             limitsAbove = high.tensor.defined() || high.number != INFINITY;
  if (limitsBelow && limitsAbove && (low.tensor.defined() || high.tensor.defined())) {
    auto [narrow, lower] = bothSides("clamp", Operand(x, where), low, where);
    auto [value, upper] = bothSides("clamp", Operand(tensorOf(narrow), where), high, where);
    return tensorOf(between(ops, value, ops.broadcastTo(lower, Ops::shape(value)), upper));
  }
  Value result = valueOf(x);
  for (const auto &[bound, limits, inside] :
       {std::tuple(low, limitsBelow, Predicate::Gt), std::tuple(high, limitsAbove, Predicate::Lt)}) {
    if (!limits)
      continue;
    auto [value, limit] = bothSides("clamp", Operand(tensorOf(result), where), bound, where);
    const auto limited = [&](Value v) { return inside == Predicate::Gt ? ops.max(v, limit) : ops.min(v, limit); };
    if (!bound.tensor.defined()) // the limited value has no gradient, also if it is NaN
      result = ops.select(ops.compare(inside, value, limit), value, limited(ops.detach(value)));
    else
      result = limited(value);
  }
  return tensorOf(result);
}

Tensor detach(Tensor x, Where where) { return tensorOf(Ops("detach", where).detach(valueOf(x))); }

// ---- functions ----------------------------------------------------------------------------------------------------

Tensor sign(Tensor x, Where where) {
  Ops ops("sign", where);
  checkFloat("sign", 1, x, where);
  Value v = valueOf(x), zero = ops.constantLike(v, 0);
  Value negative = ops.select(ops.compare(Predicate::Lt, v, zero), ops.constantLike(v, -1), zero);
  return tensorOf(ops.select(ops.compare(Predicate::Gt, v, zero), ops.constantLike(v, 1), negative));
}

Tensor softplus(Tensor x, double beta, Where where) {
  Ops ops("softplus", where);
  checkFloat("softplus", 1, x, where);
  if (!(beta > 0))
    failRule("softplus", 2, fmt::format("beta must be positive, found {}", beta), {fact(x, "input")}, where);
  Value scaled = ops.scale(ops.single(valueOf(x)), beta);
  return tensorOf(ops.activation(ops.scale(ops.softplus(scaled), 1 / beta)));
}

Tensor leakyRelu(Tensor x, double slope, Where where) {
  Ops ops("leakyRelu", where);
  checkFloat("leakyRelu", 1, x, where);
  Value v = valueOf(x);
  return tensorOf(ops.select(ops.compare(Predicate::Gt, v, 0), v, ops.scale(v, slope)));
}

/// e^x - 1 = tanh(x/2) (e^x + 1), which is accurate near 0; its gradient is not where tanh is near -1.
static Tensor scaledElu(const char *name, Tensor x, double alpha, double scale, Where where) {
  Ops ops(name, where);
  checkFloat(name, 1, x, where);
  Value v = ops.single(valueOf(x)), zero = ops.constantLike(v, 0);
  Value positive = ops.compare(Predicate::Gt, v, zero), below = ops.select(positive, zero, v);
  Value power = ops.exp(below), one = ops.constantLike(v, 1), near = ops.compare(Predicate::Gt, below, -0.5);
  Value less = ops.select(near, ops.mul(ops.tanh(ops.scale(below, 0.5)), ops.add(power, one)), ops.sub(power, one));
  return tensorOf(ops.activation(ops.scale(ops.select(positive, v, ops.scale(less, alpha)), scale)));
}

Tensor elu(Tensor x, double alpha, Where where) { return scaledElu("elu", x, alpha, 1, where); }
Tensor selu(Tensor x, Where where) { return scaledElu("selu", x, 1.6732632423543772, 1.0507009873554805, where); }

Tensor relu6(Tensor x, Where where) {
  Ops ops("relu6", where);
  checkFloat("relu6", 1, x, where);
  Value v = valueOf(x);
  Value limited = ops.select(ops.compare(Predicate::Ge, v, 6), ops.constantLike(v, 6), v);
  return tensorOf(ops.select(ops.compare(Predicate::Le, v, 0), ops.constantLike(v, 0), limited));
}

/// The parabola x (x + 3) / 6 gets 0 where it is not selected, so that its gradient is not NaN.
Tensor hardSwish(Tensor x, Where where) {
  Ops ops("hardSwish", where);
  checkFloat("hardSwish", 1, x, where);
  Value v = valueOf(x), zero = ops.constantLike(v, 0);
  Value small = ops.compare(Predicate::Lt, v, 3), below = ops.compare(Predicate::Le, v, -3);
  Value middle = ops.select(small, ops.select(below, zero, v), zero);
  Value parabola = ops.mul(middle, ops.scale(ops.shift(middle, 3), 1.0 / 6));
  return tensorOf(ops.select(small, ops.select(below, ops.scale(v, 0), parabola), v));
}

Tensor mish(Tensor x, Where where) {
  Ops ops("mish", where);
  checkFloat("mish", 1, x, where);
  Value v = ops.single(valueOf(x));
  return tensorOf(ops.activation(ops.mul(v, ops.tanh(ops.softplus(v)))));
}

Tensor logSigmoid(Tensor x, Where where) {
  Ops ops("logSigmoid", where);
  checkFloat("logSigmoid", 1, x, where);
  return tensorOf(ops.activation(ops.neg(ops.softplus(ops.neg(ops.single(valueOf(x)))))));
}

Tensor prelu(Tensor x, Tensor weight, Where where) {
  Ops ops("prelu", where);
  checkFloat("prelu", 1, x, where);
  const bool one = weight.elements() == 1, channels = x.rank() > 1 && weight.shape() == Shape{x.size(1)};
  if (weight.dtype() != x.dtype() || weight.rank() > 1 || (!one && !channels))
    failRule("prelu", 2, "the weight needs one element, or one per channel (dimension 1), of the input's type",
             {fact(x, "input"), fact(weight, "weight")}, where);
  Value v = valueOf(x), w = valueOf(weight);
  w = one ? ops.broadcast(ops.reshape(w, {}), x.shape(), {}) : ops.along(w, x.shape(), 1);
  Value positive = ops.compare(Predicate::Gt, v, 0), negative = ops.select(positive, ops.constantLike(v, 0), v);
  return tensorOf(ops.select(positive, v, ops.mul(w, negative)));
}

} // namespace cleave
