// The convolutions of the suite, also used for cuDNN tests without a GPU
// (tests/unit/runtime/cuda/CudnnDescriptors.cpp).
#pragma once
#include "tests/conformance/DeviceRun.h"

namespace cleave::test {

/// A plan whose only step is a convolution; the operands are slots 0 to 2, a bias is slot 3.
/// `gradient`: the type of a gradient of weights, if it is not that of the operands.
inline PlanT convPlan(ConvT op, plan::DType dtype = plan::DType::F32, std::optional<plan::DType> gradient = {}) {
  const plan::DType weights = op.kind == ConvKind::BackwardWeights ? gradient.value_or(dtype) : dtype;
  op.dtype = op.kind == ConvKind::BackwardWeights ? weights : dtype;
  return stepPlan([&](ProgramWriter &w) {
    auto layout = [&](int64_t n, int64_t c, int64_t h, int64_t x) {
      return op.nhwc ? std::vector<int64_t>{n, h, x, c} : std::vector<int64_t>{n, c, h, x};
    };
    op.src = w.slot("src", dtype, layout(op.n, op.ic, op.ih, op.iw), Space::Persistent);
    op.weights = w.slot("weights", weights, layout(op.oc, op.ic / op.groups, op.kh, op.kw), Space::Persistent);
    op.dst = w.slot("dst", dtype, layout(op.n, op.oc, op.oh, op.ow), Space::Persistent);
    if (op.bias == 0)
      op.bias = static_cast<int>(w.slot("bias", dtype, {op.oc}, Space::Persistent));
    w.step(0, op);
  });
}

/// The number of products that each sum of a convolution has.
inline int64_t productsOf(const ConvT &op) {
  const int64_t window = op.kh * op.kw;
  return op.kind == ConvKind::Forward        ? op.ic / op.groups * window
         : op.kind == ConvKind::BackwardData ? op.oc / op.groups * window
                                             : op.n * op.oh * op.ow;
}

/// A convolution whose input is one column wider than high.
inline ConvT conv(int64_t n, int64_t ic, int64_t size, int64_t oc, int64_t k, int64_t stride, int64_t pad,
                  int64_t groups = 1, int64_t dilation = 1) {
  ConvT op;
  op.n = n, op.ic = ic, op.ih = size, op.iw = size + 1, op.oc = oc, op.kh = k, op.kw = k;
  op.stride_h = op.stride_w = stride;
  op.dilation_h = op.dilation_w = dilation;
  op.pad_top = op.pad_left = op.pad_bottom = op.pad_right = pad;
  int64_t reach = (k - 1) * dilation + 1;
  op.oh = (op.ih + 2 * pad - reach) / stride + 1;
  op.ow = (op.iw + 2 * pad - reach) / stride + 1;
  op.groups = groups;
  op.bias = -1;
  return op;
}

inline std::vector<ConvT> convolutions() {
  return {conv(2, 1, 12, 8, 3, 1, 1),      conv(2, 3, 9, 16, 3, 2, 1),  conv(1, 16, 7, 32, 1, 1, 0),
          conv(2, 16, 8, 16, 3, 1, 1),     conv(2, 5, 11, 7, 5, 2, 2),  conv(2, 8, 7, 8, 3, 1, 1, 8),
          conv(1, 4, 9, 6, 3, 1, 2, 2, 2), conv(2, 16, 8, 32, 1, 2, 0), conv(3, 33, 5, 17, 3, 1, 1),
          conv(1, 48, 3, 80, 1, 1, 0),     conv(3, 1, 2, 40, 1, 1, 0)};
}

/// The convolutions that are also tested in the half types and in TF32.
inline std::vector<ConvT> halfConvolutions() {
  return {conv(2, 3, 9, 16, 3, 2, 1), conv(1, 16, 7, 32, 1, 1, 0), conv(2, 16, 8, 16, 3, 1, 1),
          conv(2, 8, 7, 8, 3, 1, 1, 8), conv(1, 48, 3, 80, 1, 1, 0)};
}

/// Calls `fn(convolution)` for each direction, with channels first and last, alone and accumulating or with a bias;
/// forward also with a bias and ReLU.
template <typename Fn> void forEachDirection(ConvT op, Fn fn) {
  for (ConvKind kind : {ConvKind::Forward, ConvKind::BackwardData, ConvKind::BackwardWeights})
    for (int flags = 0; flags < 4; ++flags) {
      op.kind = kind;
      op.nhwc = flags & 1;
      op.accumulate = flags & 2;
      op.bias = kind == ConvKind::Forward && flags < 2 ? 0 : -1;
      op.epilogue = Epilogue::None;
      fn(op);
      if (op.bias < 0)
        continue;
      op.epilogue = Epilogue::Relu;
      fn(op);
    }
}

} // namespace cleave::test
