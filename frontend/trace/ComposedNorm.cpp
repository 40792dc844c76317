// Norms composed of several ops: RMS norm, group norm, instance norm.
#include "frontend/trace/Compose.h"
#include "frontend/trace/Diagnose.h"
#include "frontend/trace/Statistics.h"
#include "ir/graph/Marks.h"
#include "runtime/base/Counted.h"

#include <fmt/format.h>
#include <numeric>

namespace cleave {

using namespace ir;

Tensor inSingle(Tensor x, Where where) {
  if (x.dtype() != DType::F32)
    return x;
  return tensorOf(Ops("cast", where).op<CastOp>(typeOf(x), valueOf(x)).getResult());
}

Tensor asActivation(Tensor x, Where where) {
  if (x.dtype() != DType::F32)
    return x;
  Ops ops("cast", where);
  auto op = ops.op<CastOp>(typeOf(x), valueOf(x));
  op->setAttr(attr::activation, ops.trace.builder.getUnitAttr());
  return tensorOf(op.getResult());
}

/// Repeats a value per row of x along the last dimension.
static Tensor alongRows(Tensor value, Tensor x, Where where) {
  std::vector<int64_t> dims(static_cast<size_t>(x.rank() - 1));
  std::iota(dims.begin(), dims.end(), 0);
  Ops ops("broadcast", where);
  return tensorOf(ops.broadcast(valueOf(value), x.shape(), dims));
}

/// x / sqrt(mean of x^2 + eps) over the last dimension.
static Tensor byRootMeanSquare(Tensor x, double eps, Where where) {
  Tensor squares = mean(Operand(x, where) * x, {-1}, false, where);
  Tensor scale = rsqrt(Operand(squares, where) + Operand(eps, where), where);
  return Operand(x, where) * alongRows(scale, x, where);
}

Tensor rmsNorm(Tensor x, Tensor weight, double eps, Where where) {
  Trace::current("rmsNorm", where);
  if (x.rank() < 1 || weight.shape() != Shape{x.size(-1)} || weight.dtype() != x.dtype() || !isFloat(x))
    failRule(
        "rmsNorm", 1,
        fmt::format("the input's last dimension is {}, the weight has shape {}, and both must be of one float type",
                    x.rank() < 1 ? 0 : x.size(-1), shapeText(weight.shape())),
        {fact(x, "input"), fact(weight, "weight")}, where);
  Tensor y = byRootMeanSquare(inSingle(x, where), eps, where);
  return asActivation(Operand(y, where) * weight, where);
}

/// Repeats a value per channel along all dimensions of x except 1.
static Tensor perChannel(Ops &ops, Tensor value, Tensor x) { return tensorOf(ops.along(valueOf(value), x.shape(), 1)); }

/// Group norm, reporting errors under the function name that the user called.
static Tensor grouped(const char *name, Tensor x, int64_t groups, Tensor weight, Tensor bias, double eps, Where where) {
  Ops ops(name, where);
  Facts facts = {fact(x, "input")};
  for (auto [tensor, role] : {std::pair(weight, "weight"), std::pair(bias, "bias")})
    if (tensor.defined() && (tensor.shape() != Shape{x.size(1)} || tensor.dtype() != x.dtype()))
      failRule(name, 3,
               fmt::format("the input has {} channels, the {} shape {}", x.size(1), role, shapeText(tensor.shape())),
               {fact(x, "input"), fact(tensor, role)}, where);
  if (!isFloat(x))
    failRule(name, 5, "the input's elements must be of a float type", facts, where);
  if (x.elements() / (x.size(0) * groups) < 2)
    failRule(name, 4, "each group has only one value, so its variance is undefined", facts, where);
  Tensor y = reshape(inSingle(x, where), {x.size(0), groups, -1}, where);
  y = Operand(y, where) - alongRows(mean(y, {-1}, false, where), y, where);
  y = reshape(byRootMeanSquare(y, eps, where), x.shape(), where);
  if (weight.defined())
    y = Operand(y, where) * perChannel(ops, weight, x);
  if (bias.defined())
    y = Operand(y, where) + perChannel(ops, bias, x);
  return asActivation(y, where);
}

Tensor groupNorm(Tensor x, int64_t groups, Tensor weight, Tensor bias, double eps, Where where) {
  Trace::current("groupNorm", where);
  if (x.rank() < 2)
    failRule("groupNorm", 1, fmt::format("the rank must be at least 2, found {}", x.rank()), {fact(x, "input")}, where);
  if (groups < 1 || x.size(1) % groups)
    failRule("groupNorm", 2, fmt::format("{} channels cannot be cut into {} groups", x.size(1), groups),
             {fact(x, "input")}, where);
  return grouped("groupNorm", x, groups, weight, bias, eps, where);
}

Tensor instanceNorm(Tensor x, Tensor weight, Tensor bias, double eps, Where where) {
  Trace::current("instanceNorm", where);
  if (x.rank() < 3)
    failRule("instanceNorm", 1, fmt::format("the rank must be at least 3, found {}", x.rank()), {fact(x, "input")},
             where);
  return grouped("instanceNorm", x, x.size(1), weight, bias, eps, where);
}

} // namespace cleave
