// Kernels of pooling and its gradients.
#include "ir/graph/Graph.h"
#include "ir/interpreter/Executable.h"

#include "llvm/ADT/TypeSwitch.h"

#include <algorithm>

using namespace mlir;

namespace cleave::ir {

namespace {

struct Pooling {
  std::vector<int64_t> kernel, stride, padding;

  /// Calls f(window, plane, pixel) for each element of each window that is inside the input, in row order. `window`
  /// is the linear index in `pooled`; `pixel` is the index in the [h, w] plane of `input` that begins at `plane`.
  template <typename F> void walk(const std::vector<int64_t> &input, const std::vector<int64_t> &pooled, F f) const {
    int64_t h = input[2], w = input[3], window = 0;
    for (int64_t plane = 0; plane < input[0] * input[1]; ++plane)
      for (int64_t i = 0; i < pooled[2]; ++i)
        for (int64_t j = 0; j < pooled[3]; ++j, ++window)
          for (int64_t y = i * stride[0] - padding[0], endY = y + kernel[0]; y < endY; ++y)
            for (int64_t x = j * stride[1] - padding[1], endX = x + kernel[1]; x < endX; ++x)
              if (y >= 0 && y < h && x >= 0 && x < w)
                f(window, plane * h * w, y * w + x);
  }
};

} // namespace

template <typename Op> static Pooling poolingOf(Op op) {
  return {op.getKernel().vec(), op.getStride().vec(), op.getPadding().vec()};
}

/// The workspace stores the index of each window's maximum within its plane: the first, or the last NaN.
static Kernel maxPool(MaxPool2dOp op) {
  return [type = emptyTensor(op.getResult().getType()), indices = emptyTensor(op.getWorkspace().getType()),
          pooling = poolingOf(op)](const Operands &in, Environment &) {
    HostTensor out = type, at = indices;
    out.values.assign(elementCount(out.shape), 0);
    at.values.assign(out.values.size(), -1);
    pooling.walk(in[0]->shape, out.shape, [&](int64_t window, int64_t plane, int64_t pixel) {
      double value = in[0]->values[plane + pixel];
      if (at.values[window] < 0 || value > out.values[window] || value != value) {
        out.values[window] = value;
        at.values[window] = pixel;
      }
    });
    return std::vector<HostTensor>{std::move(out), std::move(at)};
  };
}

static Kernel maxPoolGrad(MaxPool2dGradOp op) {
  return [type = emptyTensor(op.getType())](const Operands &in, Environment &) {
    HostTensor out = type;
    out.values.assign(elementCount(out.shape), 0);
    int64_t plane = out.shape[2] * out.shape[3], windows = in[0]->shape[2] * in[0]->shape[3];
    for (int64_t i = 0; i < in[0]->size(); ++i)
      out.values[i / windows * plane + int64_t(in[1]->values[i])] += in[0]->values[i];
    out.round();
    return std::vector<HostTensor>{std::move(out)};
  };
}

static Kernel avgPool(AvgPool2dOp op) {
  return [type = emptyTensor(op.getType()), pooling = poolingOf(op)](const Operands &in, Environment &) {
    HostTensor out = type;
    out.values.assign(elementCount(out.shape), 0);
    double count = pooling.kernel[0] * pooling.kernel[1];
    pooling.walk(in[0]->shape, out.shape, [&](int64_t window, int64_t plane, int64_t pixel) {
      out.values[window] += in[0]->values[plane + pixel];
    });
    for (double &value : out.values)
      value /= count;
    out.round();
    return std::vector<HostTensor>{std::move(out)};
  };
}

static Kernel avgPoolGrad(AvgPool2dGradOp op) {
  return [type = emptyTensor(op.getType()), pooling = poolingOf(op)](const Operands &in, Environment &) {
    HostTensor out = type;
    out.values.assign(elementCount(out.shape), 0);
    double count = pooling.kernel[0] * pooling.kernel[1];
    pooling.walk(out.shape, in[0]->shape, [&](int64_t window, int64_t plane, int64_t pixel) {
      out.values[plane + pixel] += in[0]->values[window] / count;
    });
    out.round();
    return std::vector<HostTensor>{std::move(out)};
  };
}

Kernel poolingKernel(Operation *op) {
  return llvm::TypeSwitch<Operation *, Kernel>(op)
      .Case([](MaxPool2dOp op) { return maxPool(op); })
      .Case([](MaxPool2dGradOp op) { return maxPoolGrad(op); })
      .Case([](AvgPool2dOp op) { return avgPool(op); })
      .Case([](AvgPool2dGradOp op) { return avgPoolGrad(op); })
      .Default([](Operation *) { return Kernel(); });
}

} // namespace cleave::ir
