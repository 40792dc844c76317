// Pooling by the runtime's own kernels: they read memory once, in either layout, and the backward pass gathers instead
// of scattering, which gives the same bits every time. (cuDNN's graph API has pooling for channels-last layouts only.)
#include "runtime/cuda/executor/StepOps.h"
#include "runtime/cuda/kernels/KernelTypes.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <array>

namespace cleave::cuda {

namespace {

std::array<int64_t, 4> stridesOf(int64_t c, int64_t h, int64_t w, bool channelsLast) {
  return channelsLast ? std::array<int64_t, 4>{h * w * c, 1, w * c, c} : std::array<int64_t, 4>{c * h * w, h * w, w, 1};
}

const char *nameOf(plan::PoolKind kind) {
  switch (kind) {
  case plan::PoolKind::MaxForward:
    return "cleave_max_forward_";
  case plan::PoolKind::MaxBackward:
    return "cleave_max_backward_";
  case plan::PoolKind::AverageForward:
    return "cleave_average_forward_";
  case plan::PoolKind::AverageBackward:
    return "cleave_average_backward_";
  }
  return "";
}

/// Granularity of a thread's work.
enum class Form { Any, Small, Packed };

Form formOf(const plan::Pool &p) {
  const bool small = p.n() * p.c() * std::max(p.ih() * p.iw(), p.oh() * p.ow()) < 1 << 30 && p.kh() * p.kw() <= 256;
  const bool packed = p.nhwc() && p.c() * static_cast<int64_t>(dtypeSize(p.dtype())) % 16 == 0;
  return !small ? Form::Any : packed ? Form::Packed : Form::Small;
}

std::string kernelName(const plan::Pool &p) {
  static constexpr const char *forms[] = {"", "small_", "packed_"};
  return nameOf(p.kind()) + std::string(forms[static_cast<int>(formOf(p))]) + elementSuffix(p.dtype());
}

class PoolOp final : public Op {
public:
  PoolOp(const plan::Pool &p, SlotScope &scope, const Queue &queue, OwnKernels &kernels)
      : wide{scope.local(p.src())}, narrow{scope.local(p.dst())}, hasWorkspace(p.workspace() >= 0),
        function(kernels.function(kernelName(p))), queue(queue) {
    if (hasWorkspace)
      workspace = {scope.local(static_cast<uint32_t>(p.workspace()))};
    a.n = p.n(), a.c = p.c(), a.ih = p.ih(), a.iw = p.iw(), a.oh = p.oh(), a.ow = p.ow(), a.kh = p.kh(), a.kw = p.kw();
    a.strideH = p.stride_h(), a.strideW = p.stride_w(), a.padTop = p.pad_top(), a.padLeft = p.pad_left();
    a.includePadding = p.include_padding();
    std::ranges::copy(stridesOf(a.c, a.ih, a.iw, p.nhwc()), a.wideStrides);
    std::ranges::copy(stridesOf(a.c, a.oh, a.ow, p.nhwc()), a.narrowStrides);
    const bool forward = p.kind() == plan::PoolKind::MaxForward || p.kind() == plan::PoolKind::AverageForward;
    items = a.n * a.c * (forward ? a.oh * a.ow : a.ih * a.iw);
    if (formOf(p) == Form::Packed)
      items /= 16 / static_cast<int64_t>(dtypeSize(p.dtype()));
  }

  void run(SlotTable slots, const RunContext &) override {
    a.wide = wide.at(slots);
    a.narrow = narrow.at(slots);
    a.chosen = hasWorkspace ? workspace.at(slots) : nullptr;
    OwnKernels::start(function, queue, a, items);
  }

private:
  StepOperand wide, narrow, workspace;
  bool hasWorkspace;
  PoolArguments a{};
  int64_t items = 0;
  CUfunction function;
  const Queue &queue;
};

} // namespace

std::unique_ptr<Op> makeOwnOp(const plan::Pool &op, SlotScope &scope, const Queue &queue, OwnKernels &kernels) {
  return std::make_unique<PoolOp>(op, scope, queue, kernels);
}

} // namespace cleave::cuda
