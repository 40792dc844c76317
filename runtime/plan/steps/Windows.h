// Convolution and pooling.
#pragma once
#include "runtime/plan/steps/Describe.h"

namespace cleave::steps {

/// Whether there are exactly `count` windows of `window` elements at distance `stride` on a padded line of `size`
/// elements.
inline bool reaches(int64_t size, int64_t low, int64_t high, int64_t window, int64_t stride, int64_t count) {
  const __int128 all = static_cast<__int128>(size) + low + high - window;
  return all >= 0 && all / stride + 1 == count;
}

/// Whether Winograd's method computes a convolution.
inline bool suitsWinograd(int64_t kh, int64_t kw, int64_t strideH, int64_t strideW, int64_t groups, plan::DType type) {
  return (kh == 3 || kh == 5) && kw == kh && strideH == 1 && strideW == 1 && groups == 1 && type != plan::DType::F16;
}

// ---- Conv ---------------------------------------------------------------------------------------------------------

inline Defect problem(const plan::Conv &op, const Context &c) {
  if (op.ic() % op.groups() || op.oc() % op.groups())
    return fmt::format("{} groups for {} to {} channels", op.groups(), op.ic(), op.oc());
  if (!sane({op.n(), op.ic(), op.ih(), op.iw()}) || !sane({op.n(), op.oc(), op.oh(), op.ow()}) ||
      !sane({op.oc(), op.ic(), op.kh(), op.kw()}) || !sane({op.stride_h(), op.oh()}) ||
      !sane({op.stride_w(), op.ow()}) || !sane({op.dilation_h(), op.kh()}) || !sane({op.dilation_w(), op.kw()}))
    return "a size, stride or dilation is out of range";
  if (!reaches(op.ih(), op.pad_top(), op.pad_bottom(), (op.kh() - 1) * op.dilation_h() + 1, op.stride_h(), op.oh()) ||
      !reaches(op.iw(), op.pad_left(), op.pad_right(), (op.kw() - 1) * op.dilation_w() + 1, op.stride_w(), op.ow()))
    return fmt::format("{} x {} windows of {} x {}", op.oh(), op.ow(), op.ih(), op.iw());
  const bool forward = op.kind() == plan::ConvKind::Forward, data = op.kind() == plan::ConvKind::BackwardData;
  const uint32_t result = forward ? op.dst() : data ? op.src() : op.weights();
  if (std::string problem = productTypeProblem(c, data ? op.dst() : op.src(), forward || data ? op.weights() : op.dst(),
                                               result, op.dtype());
      !problem.empty())
    return problem;
  if (op.winograd() &&
      !suitsWinograd(op.kh(), op.kw(), op.stride_h(), op.stride_w(), op.groups(), op.dtype()))
    return fmt::format("winograd for {} x {} windows in {} groups of {}", op.kh(), op.kw(), op.groups(),
                       dtypeName(op.dtype()));
  if (op.bias() >= 0 && !forward)
    return fmt::format("{} with a bias", EnumNameConvKind(op.kind()));
  const plan::Epilogue epilogue = op.epilogue();
  if (epilogue == plan::Epilogue::None)
    return {};
  if (epilogue != plan::Epilogue::Relu)
    return fmt::format("epilogue {} of a convolution", static_cast<int>(epilogue));
  if (op.bias() < 0)
    return "epilogue Relu of a convolution without a bias";
  return op.accumulate() ? "epilogue Relu of a convolution with accumulation" : "";
}

inline void accesses(const plan::Conv &op, const Accesses &a) {
  const uint64_t src = elements({op.n(), op.ic(), op.ih(), op.iw()}),
                 dst = elements({op.n(), op.oc(), op.oh(), op.ow()});
  const uint64_t weights = op.groups() > 0 ? elements({op.oc(), op.ic() / op.groups(), op.kh(), op.kw()}) : 0;
  const bool forward = op.kind() == plan::ConvKind::Forward, data = op.kind() == plan::ConvKind::BackwardData;
  if (!data)
    a.read(op.src(), src);
  if (forward || data)
    a.read(op.weights(), weights);
  if (!forward)
    a.read(op.dst(), dst);
  if (op.bias() >= 0)
    a.read(op.bias(), static_cast<uint64_t>(op.oc()));
  if (forward)
    a.result(op.dst(), dst, op.accumulate());
  else
    data ? a.result(op.src(), src, op.accumulate()) : a.result(op.weights(), weights, op.accumulate());
}

inline bool isLinear(const plan::Conv &op) { return op.epilogue() == plan::Epilogue::None; }

inline double flops(const plan::Conv &op) {
  return product({op.n(), op.oc(), op.oh(), op.ow(), op.ic() / op.groups(), op.kh(), op.kw()}, 2);
}

inline Work work(const plan::Conv &op, const Context &c) {
  Work work;
  work.kind = WorkClass::Convolution;
  work.batch = std::max<int64_t>(1, op.groups());
  const int64_t in = op.ic() / work.batch, out = op.oc() / work.batch, window = op.kh() * op.kw();
  work.flops = flops(op);
  switch (op.kind()) {
  case plan::ConvKind::Forward:
    work.m = op.n() * op.oh() * op.ow(), work.n = out, work.k = in * window;
    break;
  case plan::ConvKind::BackwardData: // with a stride, only a part of the window reaches each input element
    work.m = op.n() * op.ih() * op.iw(), work.n = in;
    work.k = std::max<int64_t>(1, out * window / std::max<int64_t>(1, op.stride_h() * op.stride_w()));
    break;
  case plan::ConvKind::BackwardWeights:
    work.m = out, work.n = in * window, work.k = op.n() * op.oh() * op.ow();
    break;
  }
  work.winograd = op.winograd();
  work.factors = op.winograd() ? plan::DType::F32 : c.slot(op.src()).dtype();
  work.bytes = c.bytes(op.src()) + c.bytes(op.weights()) + c.bytes(op.dst());
  if (op.accumulate())
    work.bytes += c.bytes(op.kind() == plan::ConvKind::BackwardWeights ? op.weights() : op.dst());
  return work;
}

inline OnGpu onGpu(const plan::Conv &) { return {.library = OnGpu::Cudnn, .workspace = uint64_t{128} << 20}; }

inline std::string text(const plan::Conv &op, const plan::Plan &) {
  return fmt::format("conv {} src %{} weights %{} dst %{} {}x{}x{}x{} -> {}x{}x{} kernel {}x{}{}{}{}",
                     EnumNameConvKind(op.kind()), op.src(), op.weights(), op.dst(), op.n(), op.ic(), op.ih(), op.iw(),
                     op.oc(), op.oh(), op.ow(), op.kh(), op.kw(), biasText(op.bias()), epilogueText(op.epilogue()),
                     op.winograd() ? " winograd" : "");
}

// ---- Pool ---------------------------------------------------------------------------------------------------------

inline Defect problem(const plan::Pool &op, const Context &c) {
  constexpr int64_t mostWindow = 1 << 20; // elements of a window, which no slot size limits
  if (!sane({op.n(), op.c(), op.ih(), op.iw()}) || !sane({op.n(), op.c(), op.oh(), op.ow()}) ||
      !sane({op.stride_h(), op.oh()}) || !sane({op.stride_w(), op.ow()}) || op.kh() * op.kw() > mostWindow)
    return "a size or stride is out of range";
  if (!reaches(op.ih(), op.pad_top(), op.pad_bottom(), op.kh(), op.stride_h(), op.oh()) ||
      !reaches(op.iw(), op.pad_left(), op.pad_right(), op.kw(), op.stride_w(), op.ow()))
    return fmt::format("{} x {} windows of {} x {}", op.oh(), op.ow(), op.ih(), op.iw());
  const bool max = op.kind() == plan::PoolKind::MaxForward || op.kind() == plan::PoolKind::MaxBackward;
  if (max != (op.workspace() >= 0))
    return max ? "max pooling needs a workspace slot" : "average pooling has no workspace slot";
  if (op.dtype() > plan::DType::BF16)
    return "pooling requires a float element type";
  const std::string problem = typeProblem(c, op.dtype(), {op.src(), op.dst()});
  return problem.empty() && max ? typeProblem(c, plan::DType::I32, {op.workspace()}) : problem;
}

inline void accesses(const plan::Pool &op, const Accesses &a) {
  const uint64_t src = elements({op.n(), op.c(), op.ih(), op.iw()}), dst = elements({op.n(), op.c(), op.oh(), op.ow()});
  const bool forward = op.kind() == plan::PoolKind::MaxForward || op.kind() == plan::PoolKind::AverageForward;
  forward ? a.read(op.src(), src) : a.read(op.dst(), dst);
  if (op.kind() == plan::PoolKind::MaxBackward && op.workspace() >= 0)
    a.read(op.workspace(), dst);
  if (op.kind() == plan::PoolKind::MaxForward && op.workspace() >= 0)
    a.write(op.workspace(), dst);
  forward ? a.write(op.dst(), dst) : a.write(op.src(), src);
}

inline bool isLinear(const plan::Pool &op) { return op.kind() != plan::PoolKind::MaxForward; }

inline Work work(const plan::Pool &op, const Context &c) {
  return moving(WorkClass::Pooling,
                c.bytes(op.src()) + c.bytes(op.dst()) + (op.workspace() >= 0 ? c.bytes(op.workspace()) : 0));
}

inline OnGpu onGpu(const plan::Pool &) { return {}; }

inline std::string text(const plan::Pool &op, const plan::Plan &) {
  return fmt::format("pool {} src %{} dst %{} {}x{}x{}x{} -> {}x{} window {}x{}", EnumNamePoolKind(op.kind()), op.src(),
                     op.dst(), op.n(), op.c(), op.ih(), op.iw(), op.oh(), op.ow(), op.kh(), op.kw());
}

} // namespace cleave::steps
