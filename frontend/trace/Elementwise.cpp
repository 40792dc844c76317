// Elementwise functions, arithmetic with broadcasting, casts.
#include "frontend/trace/Compose.h"
#include "frontend/trace/Diagnose.h"

#include <cmath>
#include <fmt/format.h>

namespace cleave {

using namespace ir;

#define CLEAVE_FUNCTION(Name, function)                                                                                \
  Tensor function(Tensor x, Where where) {                                                                             \
    Ops ops(#function, where);                                                                                         \
    checkFloat(#function, 1, x, where);                                                                                \
    return tensorOf(ops.function(valueOf(x)));                                                                         \
  }
#include "ir/graph/GraphElementwise.inc"

Tensor gelu(Tensor x, Gelu kind, Where where) {
  Ops ops("gelu", where);
  checkFloat("gelu", 1, x, where);
  return tensorOf(ops.op<GeluOp>(typeOf(x), valueOf(x), kind == Gelu::Tanh).getResult());
}

Tensor cast(Tensor x, DType type, Where where) {
  Ops ops("cast", where);
  return tensorOf(ops.cast(valueOf(x), type));
}

// ---- arithmetic ---------------------------------------------------------------------------------------------------

Operand::Operand(const Parameter &parameter, Where where) : tensor(parameter.tensor(where)), where(where) {}

std::optional<Shape> commonShape(const Shape &a, const Shape &b) {
  Shape out(std::max(a.size(), b.size()), 1);
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1, y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1)
      return std::nullopt;
    out[out.size() - 1 - i] = x == 1 ? y : x;
  }
  return out;
}

std::pair<mlir::Value, mlir::Value> bothSides(const char *name, const Operand &a, const Operand &b, Where where) {
  Ops ops(name, where);
  if (!a.tensor.defined() && !b.tensor.defined())
    failRule(name, 1, "one side must be a tensor",
             {{"left", fmt::format("{}", a.number)}, {"right", fmt::format("{}", b.number)}}, where);
  if (!a.tensor.defined() || !b.tensor.defined()) {
    const Tensor side = a.tensor.defined() ? a.tensor : b.tensor;
    const double number = a.tensor.defined() ? b.number : a.number;
    if (!isFloat(side) && number != std::trunc(number))
      failRule(name, 1, fmt::format("the tensor has integer elements, but {} is not an integer", number),
               {fact(side, a.tensor.defined() ? "left" : "right")}, where);
    mlir::Value x = valueOf(side), y = ops.constantLike(x, number);
    return a.tensor.defined() ? std::pair(x, y) : std::pair(y, x);
  }
  const Facts facts = {fact(a.tensor, "left"), fact(b.tensor, "right")};
  if (a.tensor.dtype() != b.tensor.dtype())
    failRule(name, 1, "the element types differ (cast one of them)", facts, where);
  const auto shape = commonShape(a.tensor.shape(), b.tensor.shape());
  if (!shape)
    failRule(name, 2,
             fmt::format("shapes {} and {} cannot be broadcast to each other", shapeText(a.tensor.shape()),
                         shapeText(b.tensor.shape())),
             facts, where);
  return {ops.broadcastTo(valueOf(a.tensor), *shape), ops.broadcastTo(valueOf(b.tensor), *shape)};
}

template <class Op> static Tensor binary(const char *name, const Operand &a, const Operand &b) {
  auto [x, y] = bothSides(name, a, b, a.where);
  return tensorOf(Ops(name, a.where).op<Op>(x, y).getResult());
}

Tensor operator+(Operand a, Operand b) { return binary<AddOp>("add", a, b); }
Tensor operator-(Operand a, Operand b) { return binary<SubOp>("sub", a, b); }
Tensor operator*(Operand a, Operand b) { return binary<MulOp>("mul", a, b); }
Tensor operator/(Operand a, Operand b) { return binary<DivOp>("div", a, b); }
Tensor pow(Operand a, Operand b) { return binary<PowOp>("pow", a, b); }
Tensor maximum(Operand a, Operand b) { return binary<MaxOp>("maximum", a, b); }
Tensor minimum(Operand a, Operand b) { return binary<MinOp>("minimum", a, b); }

/// For float types.
template <class Op> static Tensor floatBinary(const char *name, const Operand &a, const Operand &b) {
  Trace::current(name, a.where);
  for (const Operand &side : {a, b})
    if (side.tensor.defined())
      checkFloat(name, 3, side.tensor, a.where);
  return binary<Op>(name, a, b);
}

Tensor remainder(Operand a, Operand b) { return floatBinary<RemainderOp>("remainder", a, b); }
Tensor atan2(Operand y, Operand x) { return floatBinary<Atan2Op>("atan2", y, x); }

Tensor operator-(Operand a) {
  Ops ops("neg", a.where);
  if (!a.tensor.defined())
    failRule("neg", 1, "the operand must be a tensor", {}, a.where);
  return tensorOf(ops.neg(valueOf(a.tensor)));
}

Tensor &operator+=(Tensor &a, Operand b) { return a = Operand(a, b.where) + b; }
Tensor &operator-=(Tensor &a, Operand b) { return a = Operand(a, b.where) - b; }
Tensor &operator*=(Tensor &a, Operand b) { return a = Operand(a, b.where) * b; }
Tensor &operator/=(Tensor &a, Operand b) { return a = Operand(a, b.where) / b; }

} // namespace cleave
