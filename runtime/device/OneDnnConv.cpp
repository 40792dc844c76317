// Convolutions, those with 1x1 windows as matrix products where that is faster. A primitive may require other layouts;
// its arguments are then reordered through the workspace. As measured, NHWC activations are never reordered (only
// weights are). NCHW activations are reordered to blocked layouts, unless the kernel is 1x1 or there are few channels:
// then oneDNN's GEMM path on plain layouts is faster.
#include "runtime/base/Error.h"
#include "runtime/device/ConvLoops.h"
#include "runtime/device/Epilogue.h"
#include "runtime/device/MatmulShape.h"
#include "runtime/device/OneDnn.h"
#include "runtime/device/Parallel.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/plan_generated.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>

namespace cleave {

namespace {

using dnnl::memory;
using tag = memory::format_tag;

struct ConvDescs {
  memory::desc src, weights, dst, bias; ///< as in the plan
  memory::dims strides, dilation, padBegin, padEnd;
};

ConvDescs describe(const plan::Conv &op, SlotScope &scope) {
  tag layout = op.nhwc() ? tag::nhwc : tag::nchw;
  ConvDescs d;
  d.src = {{op.n(), op.ic(), op.ih(), op.iw()}, oneDnnType(scope.slot(op.src()).dtype()), layout};
  d.dst = {{op.n(), op.oc(), op.oh(), op.ow()}, oneDnnType(scope.slot(op.dst()).dtype()), layout};
  auto weightType = oneDnnType(scope.slot(op.weights()).dtype());
  int64_t g = op.groups();
  if (g == 1) {
    d.weights = {{op.oc(), op.ic(), op.kh(), op.kw()}, weightType, op.nhwc() ? tag::ohwi : tag::oihw};
  } else {
    d.weights = {{g, op.oc() / g, op.ic() / g, op.kh(), op.kw()}, weightType, op.nhwc() ? tag::gohwi : tag::goihw};
  }
  if (op.bias() >= 0)
    d.bias = {{op.oc()}, oneDnnType(scope.slot(static_cast<uint32_t>(op.bias())).dtype()), tag::a};
  d.strides = {op.stride_h(), op.stride_w()};
  d.dilation = {op.dilation_h() - 1, op.dilation_w() - 1};
  d.padBegin = {op.pad_top(), op.pad_left()};
  // The exact end padding: the plan's may be more than the windows cover.
  auto end = [](int64_t in, int64_t out, int64_t k, int64_t stride, int64_t dilation, int64_t begin) {
    return (out - 1) * stride + (k - 1) * dilation + 1 - in - begin;
  };
  d.padEnd = {end(op.ih(), op.oh(), op.kh(), op.stride_h(), op.dilation_h(), op.pad_top()),
              end(op.iw(), op.ow(), op.kw(), op.stride_w(), op.dilation_w(), op.pad_left())};
  return d;
}

memory::desc anyLayout(const memory::desc &desc) { return {desc.dims(), desc.data_type(), tag::any}; }

/// A convolution primitive of either direction, and the layouts that it requires.
struct ConvChoice {
  dnnl::primitive primitive;
  memory::desc src, weights, dst, scratchpad;
  std::string name;
};

ConvChoice choose(const plan::Conv &op, const ConvDescs &d, OneDnnContext &context, bool plain) {
  memory::desc src = plain ? d.src : anyLayout(d.src), dst = plain ? d.dst : anyLayout(d.dst),
               weights = anyLayout(d.weights);
  auto attributes = userScratchpad();
  auto algorithm = dnnl::algorithm::convolution_direct;
  bool bias = op.kind() == plan::ConvKind::Forward && op.bias() >= 0;
  auto make = [&](const memory::desc &s, const memory::desc &w, const memory::desc &t) {
    using Forward = dnnl::convolution_forward;
    auto kind = dnnl::prop_kind::forward_training;
    return Forward::primitive_desc(
        bias ? Forward::desc(kind, algorithm, s, w, d.bias, t, d.strides, d.dilation, d.padBegin, d.padEnd)
             : Forward::desc(kind, algorithm, s, w, t, d.strides, d.dilation, d.padBegin, d.padEnd),
        attributes, context.engine);
  };
  // Gradients of weights may be f32 where all else is bf16.
  auto forward = make(src, {weights.dims(), src.data_type(), tag::any}, dst);
  if (op.kind() == plan::ConvKind::Forward)
    return {dnnl::convolution_forward(forward), forward.src_desc(),     forward.weights_desc(), forward.dst_desc(),
            forward.scratchpad_desc(),          forward.impl_info_str()};
  if (op.kind() == plan::ConvKind::BackwardData) {
    dnnl::convolution_backward_data::desc desc(algorithm, src, weights, dst, d.strides, d.dilation, d.padBegin,
                                               d.padEnd);
    dnnl::convolution_backward_data::primitive_desc back(desc, attributes, context.engine, forward);
    return {dnnl::convolution_backward_data(back),
            back.diff_src_desc(),
            back.weights_desc(),
            back.diff_dst_desc(),
            back.scratchpad_desc(),
            back.impl_info_str()};
  }
  dnnl::convolution_backward_weights::desc desc(algorithm, src, weights, dst, d.strides, d.dilation, d.padBegin,
                                                d.padEnd);
  dnnl::convolution_backward_weights::primitive_desc back(desc, attributes, context.engine, forward);
  return {dnnl::convolution_backward_weights(back),
          back.src_desc(),
          back.diff_weights_desc(),
          back.diff_dst_desc(),
          back.scratchpad_desc(),
          back.impl_info_str()};
}

/// Whether plain NCHW layouts are faster.
bool prefersPlain(const plan::Conv &op) {
  if (op.nhwc() || op.kh() * op.kw() == 1)
    return true;
  if (op.kind() == plan::ConvKind::Forward)
    return op.ic() / op.groups() == 1 && op.groups() == 1;
  return op.kind() == plan::ConvKind::BackwardData && op.ic() <= 4;
}

ConvChoice chooseBest(const plan::Conv &op, const ConvDescs &d, OneDnnContext &context) {
  bool plain = prefersPlain(op);
  std::optional<ConvChoice> choice;
  try {
    choice = choose(op, d, context, plain);
    if (std::string_view(choice->name).substr(0, 3) != "ref")
      return *choice;
  } catch (const dnnl::error &) {
  }
  try { // try the other layout if the first has only the reference implementation
    ConvChoice other = choose(op, d, context, !plain);
    if (!choice || std::string_view(other.name).substr(0, 3) != "ref")
      return other;
  } catch (const dnnl::error &) {
    if (!choice)
      throw;
  }
  return *choice;
}

class ConvOp final : public Op {
public:
  ConvOp(const plan::Conv &op, SlotScope &scope, OneDnnContext &context)
      : op(op), dst{scope.local(op.dst())}, context(context) {
    if (op.epilogue() != plan::Epilogue::None && op.accumulate())
      throw environmentError("cpu: a convolution with an epilogue cannot add to its result");
    ConvDescs d = describe(op, scope);
    ConvChoice choice = chooseBest(op, d, context);
    BoundPrimitive main(context, choice.primitive);
    StepOperand src{scope.local(op.src())}, weights{scope.local(op.weights())};
    bool forward = op.kind() == plan::ConvKind::Forward, data = op.kind() == plan::ConvKind::BackwardData;
    bool toWeights = op.kind() == plan::ConvKind::BackwardWeights;
    bind(main, data ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, d.src, choice.src, src, data, op.accumulate());
    bind(main, toWeights ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, d.weights, choice.weights, weights, toWeights,
         op.accumulate());
    bind(main, forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, d.dst, choice.dst, dst, forward, op.accumulate());
    if (forward && op.bias() >= 0)
      main.bindSlot(DNNL_ARG_BIAS, d.bias, {scope.local(static_cast<uint32_t>(op.bias()))});
    main.bindWorkspace(DNNL_ARG_SCRATCHPAD, choice.scratchpad,
                       context.workspace.reserve(used, choice.scratchpad.get_size()));
    sequence = std::move(before);
    sequence.push_back(std::move(main));
    for (BoundPrimitive &primitive : after)
      sequence.push_back(std::move(primitive));
  }

  void run(SlotTable slots, const RunContext &) override {
    for (BoundPrimitive &primitive : sequence)
      primitive.run(slots);
    if (op.epilogue() != plan::Epilogue::None)
      applyEpilogue(dst.at(slots));
  }

private:
  /// Not used by CPU plans, whose compiler fuses epilogues into kernels. (oneDNN's own ReLU loses NaN.)
  void applyEpilogue(std::byte *result) const {
    parallelRange(context.threads, op.n() * op.oc() * op.oh() * op.ow(), 1024, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        storeElement(result, i, op.dtype(), epilogueOf(op.epilogue(), loadElement(result, i, op.dtype()), 0));
    });
  }

  /// Binds an argument directly, or through the workspace with a reorder before (inputs) or after (the output).
  void bind(BoundPrimitive &main, int arg, const memory::desc &ours, const memory::desc &theirs, StepOperand slot,
            bool output, bool accumulate) {
    if (ours == theirs && !(output && accumulate)) {
      main.bindSlot(arg, ours, slot);
      return;
    }
    size_t offset = context.workspace.reserve(used, theirs.get_size());
    main.bindWorkspace(arg, theirs, offset);
    const memory::desc &from = output ? theirs : ours, &to = output ? ours : theirs;
    dnnl::reorder::primitive_desc desc(context.engine, from, context.engine, to, userScratchpad(output && accumulate));
    BoundPrimitive reorder(context, dnnl::reorder(desc));
    size_t scratch = context.workspace.reserve(used, desc.scratchpad_desc().get_size());
    if (output) {
      reorder.bindWorkspace(DNNL_ARG_FROM, from, offset);
      reorder.bindSlot(DNNL_ARG_TO, to, slot);
    } else {
      reorder.bindSlot(DNNL_ARG_FROM, from, slot);
      reorder.bindWorkspace(DNNL_ARG_TO, to, offset);
    }
    reorder.bindWorkspace(DNNL_ARG_SCRATCHPAD, desc.scratchpad_desc(), scratch);
    (output ? after : before).push_back(std::move(reorder));
  }

  const plan::Conv &op;
  StepOperand dst;
  OneDnnContext &context;
  size_t used = 0;
  std::vector<BoundPrimitive> before, after, sequence;
};

/// Whether a product is faster, for convolutions that can be one (ResNet-50 at batch 8 with AVX-512). Forward, it is
/// with few pixels only, because a convolution reorders the weights in every call.
bool prefersProduct(const plan::Conv &op, bool half) {
  const int64_t pixels = op.n() * op.oh() * op.ow(), channels = std::max(op.ic(), op.oc());
  return op.kind() == plan::ConvKind::Forward ? pixels < channels : !half || pixels < 16 * channels;
}

/// All that decides the speed.
std::string textOf(const plan::Conv &op, SlotScope &scope) {
  const auto type = [&](uint32_t slot) { return dtypeName(scope.slot(slot).dtype()); };
  return fmt::format("conv {} {} {}x{}x{}x{} {} -> {}x{}x{} {} weights {} {}x{} stride {}x{} padding {}x{} dilation "
                     "{}x{} groups {}{}{}{}",
                     EnumNameConvKind(op.kind()), op.nhwc() ? "nhwc" : "nchw", op.n(), op.ic(), op.ih(), op.iw(),
                     type(op.src()), op.oc(), op.oh(), op.ow(), type(op.dst()), type(op.weights()), op.kh(), op.kw(),
                     op.stride_h(), op.stride_w(), op.pad_top(), op.pad_left(), op.dilation_h(), op.dilation_w(),
                     op.groups(), op.accumulate() ? " accumulate" : "", op.bias() >= 0 ? " bias" : "",
                     op.winograd() ? " or winograd" : "");
}

double operationsOf(const plan::Conv &op) {
  double count = 2;
  for (const int64_t size : {op.n(), op.oc(), op.oh(), op.ow(), op.ic() / op.groups(), op.kh(), op.kw()})
    count *= static_cast<double>(size);
  return count;
}

/// An empty share of the batch or of the channels: nothing to compute; the output is zero.
class ZeroOp final : public Op {
public:
  ZeroOp(StepOperand out, size_t bytes) : out(out), bytes(bytes) {}
  void run(SlotTable slots, const RunContext &) override {
    if (bytes)
      std::memset(out.at(slots), 0, bytes);
  }

private:
  StepOperand out;
  size_t bytes;
};

} // namespace

std::unique_ptr<Op> makeOneDnnConv(const plan::Step &step, SlotScope &scope, OneDnnContext &context) {
  const plan::Conv &op = *step.op_as_Conv();
  if (op.n() == 0 || op.ic() == 0 || op.oc() == 0) {
    uint32_t out = op.kind() == plan::ConvKind::Forward        ? op.dst()
                   : op.kind() == plan::ConvKind::BackwardData ? op.src()
                                                               : op.weights();
    return std::make_unique<ZeroOp>(StepOperand{scope.local(out)}, op.accumulate() ? 0 : scope.slot(out).bytes());
  }
  const Method direct{"direct", [&]() -> std::unique_ptr<Op> { return std::make_unique<ConvOp>(op, scope, context); }};
  if (op.epilogue() != plan::Epilogue::None)
    return direct.make();
  const bool half = scope.slot(op.src()).dtype() != plan::DType::F32;
  std::vector<Method> methods{direct};
  if (isProduct(op)) {
    auto [products, fast] = productMethods(op, scope, context);
    methods.insert(fast && prefersProduct(op, half) ? methods.begin() : methods.end(), products.begin(),
                   products.end());
  }
  // AMX multiplies bf16 numbers faster than our own loops, which need channels for their vectors.
  const bool amx = dnnl::get_effective_cpu_isa() == dnnl::cpu_isa::avx512_core_amx;
  const bool taps = !(half && amx) && !isProduct(op) && std::min(op.ic(), op.oc()) >= 32;
  methods.insert(taps ? methods.begin() : methods.end(),
                 {"taps", [&] { return makeGemmConv(op, scope, context.workspace, context.threads); }});
  if (op.groups() > 1)
    methods.insert(methods.begin(),
                   {"depthwise", [&] { return makeDepthwiseConv(op, scope, context.workspace, context.threads); }});
  if (op.winograd())
    methods.insert(half && amx ? methods.end() : methods.begin(),
                   {"winograd", [&] { return makeWinogradConv(op, scope, context.workspace, context.threads); }});
  std::vector<uint32_t> slots{op.src(), op.weights(), op.dst()};
  if (op.bias() >= 0)
    slots.push_back(static_cast<uint32_t>(op.bias()));
  return makeFastest(methods, textOf(op, scope), operationsOf(op), slots, scope, context);
}

} // namespace cleave
