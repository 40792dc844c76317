// Elementwise functions, arithmetic with broadcasting, casts.
#include "frontend/trace/Compose.h"
#include "frontend/trace/Diagnose.h"
#include "frontend/trace/Trace.h"

#include <cmath>
#include <fmt/format.h>

namespace cleave {

using namespace ir;

template <class Op> static Tensor unary(const char *name, Tensor x, Where where) {
  Trace &trace = Trace::current(name, where);
  if (!llvm::isa<mlir::FloatType>(typeOf(x).getElementType()))
    failRule(name, 1, "the input's elements must be of a float type", {fact(x, "input")}, where);
  return tensorOf(trace.make<Op>(where, typeOf(x), valueOf(x)).getResult());
}

Tensor relu(Tensor x, Where where) { return unary<ReluOp>("relu", x, where); }
Tensor silu(Tensor x, Where where) { return unary<SiluOp>("silu", x, where); }
Tensor tanh(Tensor x, Where where) { return unary<TanhOp>("tanh", x, where); }
Tensor sigmoid(Tensor x, Where where) { return unary<SigmoidOp>("sigmoid", x, where); }
Tensor exp(Tensor x, Where where) { return unary<ExpOp>("exp", x, where); }
Tensor log(Tensor x, Where where) { return unary<LogOp>("log", x, where); }
Tensor sqrt(Tensor x, Where where) { return unary<SqrtOp>("sqrt", x, where); }
Tensor rsqrt(Tensor x, Where where) { return unary<RsqrtOp>("rsqrt", x, where); }
Tensor abs(Tensor x, Where where) { return unary<AbsOp>("abs", x, where); }
Tensor erf(Tensor x, Where where) { return unary<ErfOp>("erf", x, where); }

Tensor gelu(Tensor x, Gelu kind, Where where) {
  Trace &trace = Trace::current("gelu", where);
  if (!llvm::isa<mlir::FloatType>(typeOf(x).getElementType()))
    failRule("gelu", 1, "the input's elements must be of a float type", {fact(x, "input")}, where);
  return tensorOf(trace.make<GeluOp>(where, typeOf(x), valueOf(x), kind == Gelu::Tanh).getResult());
}

Tensor cast(Tensor x, DType type, Where where) {
  Trace &trace = Trace::current("cast", where);
  if (x.dtype() == type)
    return x;
  return tensorOf(trace.make<CastOp>(where, trace.type(x.shape(), trace.element(type)), valueOf(x)).getResult());
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

mlir::Value broadcastTo(Trace &trace, mlir::Value x, const Shape &shape, Where where) {
  auto type = llvm::cast<mlir::RankedTensorType>(x.getType());
  if (type.getShape() == llvm::ArrayRef<int64_t>(shape))
    return x;
  const int64_t lead = static_cast<int64_t>(shape.size()) - type.getRank();
  Shape kept;
  std::vector<int64_t> dims;
  for (int64_t i = 0; i < type.getRank(); ++i)
    if (type.getDimSize(i) == shape[lead + i]) {
      kept.push_back(type.getDimSize(i));
      dims.push_back(lead + i);
    }
  if (static_cast<int64_t>(kept.size()) != type.getRank())
    x = trace.make<ReshapeOp>(where, trace.type(kept, type.getElementType()), x);
  return trace.make<BroadcastOp>(where, trace.type(shape, type.getElementType()), x, llvm::ArrayRef<int64_t>(dims));
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
    mlir::Value x = valueOf(side), y = ops.splat(x, number);
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
  return {broadcastTo(ops.trace, valueOf(a.tensor), *shape, where),
          broadcastTo(ops.trace, valueOf(b.tensor), *shape, where)};
}

template <class Op> static Tensor binary(const char *name, const Operand &a, const Operand &b) {
  auto [x, y] = bothSides(name, a, b, a.where);
  return tensorOf(Trace::current(name, a.where).make<Op>(a.where, x.getType(), x, y).getResult());
}

Tensor operator+(Operand a, Operand b) { return binary<AddOp>("add", a, b); }
Tensor operator-(Operand a, Operand b) { return binary<SubOp>("sub", a, b); }
Tensor operator*(Operand a, Operand b) { return binary<MulOp>("mul", a, b); }
Tensor operator/(Operand a, Operand b) { return binary<DivOp>("div", a, b); }
Tensor pow(Operand a, Operand b) { return binary<PowOp>("pow", a, b); }
Tensor maximum(Operand a, Operand b) { return binary<MaxOp>("maximum", a, b); }
Tensor minimum(Operand a, Operand b) { return binary<MinOp>("minimum", a, b); }

Tensor operator-(Operand a) {
  Trace &trace = Trace::current("neg", a.where);
  if (!a.tensor.defined())
    failRule("neg", 1, "the operand must be a tensor", {}, a.where);
  return tensorOf(trace.make<NegOp>(a.where, typeOf(a.tensor), valueOf(a.tensor)).getResult());
}

Tensor &operator+=(Tensor &a, Operand b) { return a = Operand(a, b.where) + b; }
Tensor &operator-=(Tensor &a, Operand b) { return a = Operand(a, b.where) - b; }
Tensor &operator*=(Tensor &a, Operand b) { return a = Operand(a, b.where) * b; }
Tensor &operator/=(Tensor &a, Operand b) { return a = Operand(a, b.where) / b; }

} // namespace cleave
