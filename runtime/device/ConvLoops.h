// What convolutions by our own loops share, whatever the method: operands, scratch memory, panels of channels.
#pragma once
#include "runtime/device/Device.h"
#include "runtime/device/Parallel.h"
#include "runtime/device/Workspace.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
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
  int64_t reserve(int64_t count) {
    return static_cast<int64_t>(workspace.reserve(used, static_cast<size_t>(count) * sizeof(float)) / sizeof(float));
  }
  float *scratch(int64_t offset) const { return reinterpret_cast<float *>(workspace.memory) + offset; }
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

} // namespace cleave
