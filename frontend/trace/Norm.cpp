// Normalisation, softmax and dropout.
#include "cleave/Pointwise.h"
#include "frontend/trace/Diagnose.h"
#include "frontend/trace/Trace.h"

#include <fmt/format.h>

namespace cleave {

using namespace ir;

/// Repeats a value per channel along all dimensions of x except 1.
static mlir::Value perChannel(Trace &trace, mlir::Value value, Tensor x, Where where) {
  const int64_t channel[] = {1};
  return trace.make<BroadcastOp>(where, typeOf(x), value, llvm::ArrayRef<int64_t>(channel));
}

/// In evaluation: x scale + shift, both per channel, from the running statistics.
static Tensor batchNormEval(Trace &trace, Tensor x, Tensor weight, Tensor bias, Tensor mean, Tensor variance,
                            double eps, Where where) {
  Tensor scale = Operand(weight, where) * rsqrt(Operand(variance, where) + Operand(eps, where), where);
  Tensor shift = Operand(bias, where) - Operand(mean, where) * scale;
  mlir::Value wide = perChannel(trace, valueOf(scale), x, where);
  mlir::Value product = trace.make<MulOp>(where, typeOf(x), valueOf(x), wide);
  mlir::Value offset = perChannel(trace, valueOf(shift), x, where);
  return tensorOf(trace.make<AddOp>(where, typeOf(x), product, offset).getResult());
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
  Trace &trace = Trace::current(name, where);
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
  if (!trace.training())
    return batchNormEval(trace, x, weight, bias, runningMean, runningVar, o.eps, where);

  const double rows = static_cast<double>(o.group > 0 ? o.group : x.size(0));
  const double count = rows * static_cast<double>(x.elements() / (x.size(0) * x.size(1)));
  if (count < 2)
    failRule(name, 4, "each channel has only one value, so its variance is undefined", facts, where);
  const cleave::detail::PerMicrobatch meant(where); // what batch statistics are is documented
  auto op = trace.make<BatchNormOp>(where, valueOf(x), valueOf(weight), valueOf(bias), llvm::APFloat(o.eps),
                                    static_cast<uint64_t>(o.group));
  moveStatistic(runningMean, tensorOf(op.getMean()), o.momentum, 1, where);
  moveStatistic(runningVar, tensorOf(op.getVariance()), o.momentum, count / (count - 1), where);
  return tensorOf(op.getResult());
}

Tensor layerNorm(Tensor x, Tensor weight, Tensor bias, double eps, Where where) {
  Trace &trace = Trace::current("layerNorm", where);
  const Facts facts = {fact(x, "input"), fact(weight, "weight"), fact(bias, "bias")};
  if (x.rank() < 1 || weight.shape() != Shape{x.size(-1)} || bias.shape() != weight.shape())
    failRule("layerNorm", 1,
             fmt::format("the input's last dimension is {}, weight and bias have shapes {} and {}",
                         x.rank() < 1 ? 0 : x.size(-1), shapeText(weight.shape()), shapeText(bias.shape())),
             facts, where);
  auto op = trace.make<LayerNormOp>(where, valueOf(x), valueOf(weight), valueOf(bias), llvm::APFloat(eps));
  return tensorOf(op.getResult());
}

template <class Op> static Tensor alongDim(const char *name, Tensor x, int64_t dim, Where where) {
  Trace &trace = Trace::current(name, where);
  dim = normalDim(name, 1, x, dim, where);
  return tensorOf(trace.make<Op>(where, typeOf(x), valueOf(x), static_cast<uint64_t>(dim)).getResult());
}

Tensor softmax(Tensor x, int64_t dim, Where where) { return alongDim<SoftmaxOp>("softmax", x, dim, where); }
Tensor logSoftmax(Tensor x, int64_t dim, Where where) { return alongDim<LogSoftmaxOp>("logSoftmax", x, dim, where); }

Tensor dropout(Tensor x, double p, Where where) {
  Trace &trace = Trace::current("dropout", where);
  if (!(p >= 0 && p < 1))
    failRule("dropout", 1, fmt::format("the probability must lie in [0, 1), found {}", p), {fact(x, "input")}, where);
  if (!trace.training() || p == 0)
    return x;
  // The random key: the module path and the index of the dropout within that path.
  const std::string key = trace.path() + "/dropout";
  const std::string name = fmt::format("{}.{}", key, trace.occurrence(key));
  mlir::Value numbers = trace.make<RandomUniformOp>(where, typeOf(x), name);
  mlir::Value keep = trace.make<CompareOp>(where, Predicate::Ge, numbers, trace.splat(where, typeOf(x), p));
  mlir::Value scaled = valueOf(Operand(x, where) * Operand(1 / (1 - p), where));
  return tensorOf(trace.make<SelectOp>(where, typeOf(x), keep, scaled, trace.splat(where, typeOf(x), 0)).getResult());
}

} // namespace cleave
