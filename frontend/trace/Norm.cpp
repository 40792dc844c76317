// Normalisation, softmax and dropout.
#include "cleave/Pointwise.h"
#include "frontend/trace/Compose.h"
#include "frontend/trace/Diagnose.h"

#include <fmt/format.h>

namespace cleave {

using namespace ir;

/// In evaluation, and in training if the statistics are frozen: x scale + shift, both per channel, from the running
/// statistics.
static Tensor batchNormEval(Ops &ops, Tensor x, Tensor weight, Tensor bias, Tensor mean, Tensor variance, double eps,
                            Where where) {
  Tensor scale = Operand(weight, where) * rsqrt(Operand(variance, where) + Operand(eps, where), where);
  Tensor shift = Operand(bias, where) - Operand(mean, where) * scale;
  mlir::Value product = ops.mul(valueOf(x), ops.along(valueOf(scale), x.shape(), 1));
  return tensorOf(ops.add(product, ops.along(valueOf(shift), x.shape(), 1)));
}

/// running = (1 - momentum) running + momentum correction now, without a gradient; `correction` makes a biased variance
/// unbiased.
static void moveStatistic(Buffer &running, Tensor now, double momentum, double correction, Where where) {
  now = detach(now, where);
  if (now.rank() == 2) // one row per group
    now = mean(now, {0}, false, where);
  Tensor before = running.tensor(where);
  running.set(Operand(before, where) * (1 - momentum) + Operand(now, where) * (momentum * correction), where);
}

Tensor batchNorm2d(Tensor x, Tensor weight, Tensor bias, Buffer &runningMean, Buffer &runningVar, BatchNormOptions o,
                   Where where) {
  constexpr const char *name = "batchNorm2d";
  Ops ops(name, where);
  const Facts facts = {fact(x, "input"), fact(weight, "weight"), fact(bias, "bias")};
  if (x.rank() < 2)
    failRule(name, 1, fmt::format("the rank must be at least 2, found {}", x.rank()), facts, where);
  const Shape channels{x.size(1)};
  if (weight.shape() != channels || bias.shape() != channels || runningMean.shape() != channels ||
      runningVar.shape() != channels)
    failRule(name, 2,
             fmt::format("the input has {} channels, {} expects {}", channels[0], nameOr(weight, "the weight"),
                         shapeText(weight.shape())),
             facts, where);
  if (o.group < 0 || (o.group > 0 && x.size(0) % o.group))
    failRule(name, 3, fmt::format("{} samples cannot be cut into groups of {}", x.size(0), o.group), facts, where);
  if (!ops.trace.training() || (runningMean.frozen() && runningVar.frozen()))
    return batchNormEval(ops, x, weight, bias, runningMean, runningVar, o.eps, where);

  const double rows = static_cast<double>(o.group > 0 ? o.group : x.size(0));
  const double count = rows * static_cast<double>(x.elements() / (x.size(0) * x.size(1)));
  if (count < 2)
    failRule(name, 4, "each channel has only one value, so its variance is undefined", facts, where);
  const cleave::internal::PerMicrobatch meant(where); // what batch statistics are is documented
  auto op = ops.op<BatchNormOp>(valueOf(x), valueOf(weight), valueOf(bias), llvm::APFloat(o.eps),
                                static_cast<uint64_t>(o.group));
  moveStatistic(runningMean, tensorOf(op.getMean()), o.momentum, 1, where);
  moveStatistic(runningVar, tensorOf(op.getVariance()), o.momentum, count / (count - 1), where);
  return tensorOf(op.getResult());
}

Tensor layerNorm(Tensor x, Tensor weight, Tensor bias, double eps, Where where) {
  Ops ops("layerNorm", where);
  const Facts facts = {fact(x, "input"), fact(weight, "weight"), fact(bias, "bias")};
  if (x.rank() < 1 || weight.shape() != Shape{x.size(-1)} || bias.shape() != weight.shape())
    failRule("layerNorm", 1,
             fmt::format("the input's last dimension is {}, weight and bias have shapes {} and {}",
                         x.rank() < 1 ? 0 : x.size(-1), shapeText(weight.shape()), shapeText(bias.shape())),
             facts, where);
  auto op = ops.op<LayerNormOp>(valueOf(x), valueOf(weight), valueOf(bias), llvm::APFloat(eps));
  return tensorOf(op.getResult());
}

template <class Op> static Tensor alongDim(const char *name, Tensor x, int64_t dim, Where where) {
  Ops ops(name, where);
  dim = normalDim(name, 1, x, dim, where);
  return tensorOf(ops.op<Op>(typeOf(x), valueOf(x), static_cast<uint64_t>(dim)).getResult());
}

Tensor softmax(Tensor x, int64_t dim, Where where) { return alongDim<SoftmaxOp>("softmax", x, dim, where); }
Tensor logSoftmax(Tensor x, int64_t dim, Where where) { return alongDim<LogSoftmaxOp>("logSoftmax", x, dim, where); }

Tensor dropout(Tensor x, double p, Where where) {
  Ops ops("dropout", where);
  if (!(p >= 0 && p < 1))
    failRule("dropout", 1, fmt::format("the probability must lie in [0, 1), found {}", p), {fact(x, "input")}, where);
  if (!ops.trace.training() || p == 0)
    return x;
  mlir::Value keep = ops.keepMask(x.shape(), p);
  mlir::Value scaled = valueOf(Operand(x, where) * Operand(1 / (1 - p), where));
  return tensorOf(ops.select(keep, scaled, ops.constantLike(scaled, 0)));
}

} // namespace cleave
