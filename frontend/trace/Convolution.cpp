// 1-D and transposed convolutions.
#include "cleave/Convolution.h"
#include "frontend/trace/Compose.h"
#include "frontend/trace/Diagnose.h"

#include <fmt/format.h>

namespace cleave {

using namespace ir;
using mlir::Value;

/// y plus one value per channel (dimension 1).
static Value withBias(Ops &ops, Value y, Tensor bias) {
  return bias.defined() ? ops.add(y, ops.along(valueOf(bias), Ops::shape(y), 1)) : y;
}

static void checkBias(const char *name, Tensor bias, Tensor weight, int64_t outputs, Where where) {
  if (bias.defined() && bias.shape() != Shape{outputs})
    failRule(name, 6, fmt::format("the bias has shape {}, the weight {} outputs", shapeText(bias.shape()), outputs),
             {fact(bias, "bias"), fact(weight, "weight")}, where);
}

static void checkConv1d(Tensor x, Tensor weight, const Conv1dOptions &o, Where where) {
  const Facts facts = {fact(x, "input"), fact(weight, "weight")};
  if (x.rank() != 3 || weight.rank() != 3)
    failRule("conv1d", 1, fmt::format("ranks must be 3, found {} and {}", x.rank(), weight.rank()), facts, where);
  if (o.stride < 1 || o.dilation < 1 || o.padding < 0)
    failRule("conv1d", 5,
             fmt::format("stride {} and dilation {} must be positive, padding {} not negative", o.stride, o.dilation,
                         o.padding),
             facts, where);
  if (o.groups < 1 || weight.size(0) % o.groups)
    failRule("conv1d", 3, fmt::format("{} outputs cannot be cut into {} groups", weight.size(0), o.groups), facts,
             where);
  if (x.size(1) != o.groups * weight.size(1))
    failRule("conv1d", 2,
             fmt::format("the input has {} channels, the weight expects {}", x.size(1), o.groups * weight.size(1)),
             facts, where);
  if (x.size(2) + 2 * o.padding < o.dilation * (weight.size(2) - 1) + 1)
    failRule("conv1d", 4, fmt::format("length {} is smaller than the kernel {}", x.size(2), weight.size(2)), facts,
             where);
}

/// Computed as a 2-D convolution on images with one row.
Tensor conv1d(Tensor x, Tensor weight, Tensor bias, Conv1dOptions o, Where where) {
  Trace::current("conv1d", where);
  checkConv1d(x, weight, o, where);
  checkBias("conv1d", bias, weight, weight.size(0), where);
  const ConvOptions row{
      .stride = {1, o.stride}, .padding = {0, o.padding}, .dilation = {1, o.dilation}, .groups = o.groups};
  Tensor y = conv2d(unsqueeze(x, 2, where), unsqueeze(weight, 2, where), bias, row, where);
  return squeeze(y, 2, where);
}

static int64_t transposedSize(int64_t size, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation,
                              int64_t more) {
  return (size - 1) * stride - 2 * padding + dilation * (kernel - 1) + more + 1;
}

static void checkTransposed(Tensor x, Tensor weight, const ConvTransposeOptions &o, Where where) {
  constexpr const char *name = "convTranspose2d";
  const Facts facts = {fact(x, "input"), fact(weight, "weight")};
  if (x.rank() != 4 || weight.rank() != 4)
    failRule(name, 1, fmt::format("ranks must be 4, found {} and {}", x.rank(), weight.rank()), facts, where);
  if (o.stride.h < 1 || o.stride.w < 1 || o.dilation.h < 1 || o.dilation.w < 1 || o.padding.h < 0 || o.padding.w < 0)
    failRule(name, 5,
             fmt::format("stride {}x{}, dilation {}x{} must be positive, padding {}x{} not negative", o.stride.h,
                         o.stride.w, o.dilation.h, o.dilation.w, o.padding.h, o.padding.w),
             facts, where);
  if (o.groups < 1 || weight.size(0) % o.groups)
    failRule(name, 3, fmt::format("{} inputs cannot be cut into {} groups", weight.size(0), o.groups), facts, where);
  if (x.size(1) != weight.size(0))
    failRule(name, 2, fmt::format("the input has {} channels, the weight expects {}", x.size(1), weight.size(0)), facts,
             where);
  if (o.outputPadding.h < 0 || o.outputPadding.w < 0 || o.outputPadding.h >= o.stride.h ||
      o.outputPadding.w >= o.stride.w)
    failRule(name, 7,
             fmt::format("output padding {}x{} must be smaller than the stride {}x{}", o.outputPadding.h,
                         o.outputPadding.w, o.stride.h, o.stride.w),
             facts, where);
  if (x.dtype() != weight.dtype() || !isFloat(x))
    failRule(name, 8, "the element types of input and weight must be one float type", facts, where);
}

Tensor convTranspose2d(Tensor x, Tensor weight, Tensor bias, ConvTransposeOptions o, Where where) {
  constexpr const char *name = "convTranspose2d";
  Ops ops(name, where);
  checkTransposed(x, weight, o, where);
  const int64_t outputs = weight.size(1) * o.groups;
  checkBias(name, bias, weight, outputs, where);
  const int64_t h = transposedSize(x.size(2), weight.size(2), o.stride.h, o.padding.h, o.dilation.h, o.outputPadding.h);
  const int64_t w = transposedSize(x.size(3), weight.size(3), o.stride.w, o.padding.w, o.dilation.w, o.outputPadding.w);
  if (h < 1 || w < 1)
    failRule(name, 4, fmt::format("the output would be {}x{}", h, w), {fact(x, "input"), fact(weight, "weight")},
             where);
  const int64_t stride[] = {o.stride.h, o.stride.w}, dilation[] = {o.dilation.h, o.dilation.w},
                padding[] = {o.padding.h, o.padding.w, o.padding.h, o.padding.w};
  Value y =
      ops.op<Conv2dInputGradOp>(Ops::type(valueOf(x)).clone({x.size(0), outputs, h, w}), valueOf(x), valueOf(weight),
                                llvm::ArrayRef<int64_t>(stride), llvm::ArrayRef<int64_t>(padding),
                                llvm::ArrayRef<int64_t>(dilation), static_cast<uint64_t>(o.groups))
          .getResult();
  return tensorOf(withBias(ops, y, bias));
}

} // namespace cleave
