// Convolutions by our own loops, and what these share, whatever the method: operands, scratch memory, panels of
// channels.
#pragma once
#include "runtime/device/Device.h"
#include "runtime/device/Parallel.h"
#include "runtime/device/Workspace.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <memory>
#include <vector>

namespace cleave {

/// Activations are channels last, in f32 or bf16. `Kernels` have panels of `panel` channels.
template <typename Kernels> class ConvLoops : public Op {
protected:
  ConvLoops(const plan::Conv &op, SlotScope &scope, Workspace &workspace, unsigned threads, const Kernels &kernels)
      : op(op), kernels(kernels), half(scope.slot(op.src()).dtype() == plan::DType::BF16), workspace(workspace),
        threads(threads), src{scope.local(op.src())}, weights{scope.local(op.weights())}, dst{scope.local(op.dst())},
        zeros(static_cast<size_t>(std::max(op.ic(), op.oc()))) {}

  /// Reserves `count` floats of the workspace; returns the index of the first one.
  int64_t reserve(int64_t count) { return workspace.reserveFloats(used, count); }
  float *scratch(int64_t offset) const { return workspace.floats(offset); }
  int64_t bytesOf(int64_t elements) const { return elements * (half ? 2 : 4); }
  /// Channels of panel `index` of `channels`.
  int64_t widthOf(int64_t index, int64_t channels) const {
    return std::min(kernels.panel, channels - index * kernels.panel);
  }
  int64_t panelsOf(int64_t channels) const { return (channels + kernels.panel - 1) / kernels.panel; }
  /// Calls fn(thread, index) for all indices below `count`, each thread with neighbouring ones.
  template <typename Fn> void split(int64_t count, Fn fn) const {
    parallelFor(threads, [&](unsigned thread) {
      for (int64_t i = count * thread / threads; i < count * (thread + 1) / threads; ++i)
        fn(thread, i);
    });
  }

  const plan::Conv &op;
  const Kernels &kernels;
  bool half; ///< bf16, otherwise f32
  Workspace &workspace;
  unsigned threads;
  StepOperand src, weights, dst;
  std::vector<float> zeros; ///< the channels of a pixel outside

private:
  size_t used = 0;
};

/// Whether all operands are f32, or all bf16; gradients of weights may be f32.
inline bool hasLoopTypes(const plan::Conv &op, SlotScope &scope) {
  const plan::DType type = scope.slot(op.src()).dtype(), weights = scope.slot(op.weights()).dtype();
  return (type == plan::DType::F32 || type == plan::DType::BF16) && scope.slot(op.dst()).dtype() == type &&
         (weights == type || (weights == plan::DType::F32 && op.kind() == plan::ConvKind::BackwardWeights)) &&
         (op.bias() < 0 || scope.slot(static_cast<uint32_t>(op.bias())).dtype() == type);
}

/// One dimension of the pixels of a class: the results first, first + step, ... read pixel i * stride + `at[t]` for
/// element t of the window `element[t]`.
struct Line {
  int64_t first, count;
  std::vector<int64_t> element, at;
};

struct LineShape {
  int64_t in, out, window, stride, dilation, pad;
};

/// Outputs are one class.
inline std::vector<Line> forwardLines(const LineShape &s) {
  Line line{0, s.out, {}, {}};
  for (int64_t e = 0; e < s.window; ++e)
    line.element.push_back(e), line.at.push_back(e * s.dilation - s.pad);
  return {line};
}

/// Input r + stride * i is reached from output i + (r + pad - e * dilation) / stride, where that is whole.
inline std::vector<Line> backwardLines(const LineShape &s) {
  std::vector<Line> lines;
  for (int64_t r = 0; r < std::min(s.stride, s.in); ++r) {
    Line line{r, (s.in - r + s.stride - 1) / s.stride, {}, {}};
    for (int64_t e = 0; e < s.window; ++e)
      if (const int64_t reach = r + s.pad - e * s.dilation; reach % s.stride == 0)
        line.element.push_back(e), line.at.push_back(reach / s.stride);
    lines.push_back(line);
  }
  return lines;
}

/// An Op of a convolution of any kind whose step allows Winograd's method, down to a quarter of the multiplications, by
/// F(4x4, 3x3) or F(2x2, 5x5). Null if there is none: the activations are not nhwc, the channels are no multiples of
/// 16, the plan is for processors without AVX2, or the types are neither f32 nor bf16.
///
/// Rounding: everything between the operands and the result is f32, also for operands in bf16. With normal numbers the
/// root mean square of the errors is 4 times that of sums in f32, 1.7e-6 of the results' deviation with 64 channels
/// and 4.4e-6 with 512; the largest error is 6 times as large. A NaN or an infinity reaches all outputs of its tiles,
/// not only those whose windows contain it.
std::unique_ptr<Op> makeWinogradConv(const plan::Conv &op, SlotScope &scope, Workspace &workspace, unsigned threads);

/// An Op of a convolution of any kind by the loops of matrix products (GemmKernels.h): a product for each element of
/// the window, summed in registers, whose rows are pixels where they lie in memory. Null if there are no loops for its
/// types, its layout or the plan's processors.
std::unique_ptr<Op> makeGemmConv(const plan::Conv &op, SlotScope &scope, Workspace &workspace, unsigned threads);

/// An Op of a depthwise convolution of any kind: each channel has a window of its own. Null if there are no loops for
/// its types, its layout or the plan's processors, or channels are combined.
std::unique_ptr<Op> makeDepthwiseConv(const plan::Conv &op, SlotScope &scope, Workspace &workspace, unsigned threads);

} // namespace cleave
