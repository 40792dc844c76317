// Steps of the library dialect's ops, and of graph ops that a library computes as they are.
#include "ir/graph/Graph.h"
#include "passes/export/Segment.h"

#include "llvm/ADT/TypeSwitch.h"

#include <array>

using namespace mlir;

namespace cleave::passes {

namespace {

/// Sizes as [n, c, h, w].
std::array<int64_t, 4> channelsSecond(Value value, bool last) {
  ArrayRef<int64_t> s = ir::shapeOf(value);
  return last ? std::array{s[0], s[3], s[1], s[2]} : std::array{s[0], s[1], s[2], s[3]};
}

int32_t optionalSlot(SegmentBuilder &s, Value value) { return value ? static_cast<int32_t>(s.slot(value)) : -1; }

plan::Epilogue epilogueOf(library::Epilogue epilogue) {
  switch (epilogue) {
  case library::Epilogue::None:
    return plan::Epilogue::None;
  case library::Epilogue::Relu:
    return plan::Epilogue::Relu;
  case library::Epilogue::Gelu:
    return plan::Epilogue::Gelu;
  case library::Epilogue::GeluGradient:
    return plan::Epilogue::GeluGradient;
  }
  llvm_unreachable("an epilogue without a step");
}

void emit(SegmentBuilder &s, library::MatmulOp call) {
  plan::MatmulT step;
  step.a = s.view(call.getA(), call.getAView());
  step.b = s.view(call.getB(), call.getBView());
  step.c = s.view(call.getResult(), call.getCView());
  step.batch = call.getBatch().vec();
  step.m = call.getM(), step.n = call.getN(), step.k = call.getK();
  step.dtype = plannedType(call.getResult().getType());
  step.accumulate = call.getAccumulate();
  step.bias = optionalSlot(s, call.getBias());
  step.epilogue = epilogueOf(call.getEpilogue());
  step.row_sums = optionalSlot(s, call.rowSums());
  if (Value aux = call.getAux() ? call.getAux() : call.auxResult())
    step.aux = s.view(aux, *call.getAuxView());
  s.step(call, std::move(step));
}

/// The step of one of the convolutions: activations before and after, weights.
template <typename Op> plan::ConvT convStep(SegmentBuilder &s, Op call, Value src, Value dst, Value weights) {
  plan::ConvT step;
  step.src = s.slot(src), step.dst = s.slot(dst), step.weights = s.slot(weights);
  step.bias = -1;
  step.nhwc = call.getChannelsLast();
  const auto in = channelsSecond(src, step.nhwc), out = channelsSecond(dst, step.nhwc),
             kernel = channelsSecond(weights, step.nhwc);
  step.n = in[0], step.ic = in[1], step.ih = in[2], step.iw = in[3];
  step.oc = out[1], step.oh = out[2], step.ow = out[3];
  step.kh = kernel[2], step.kw = kernel[3];
  const ArrayRef<int64_t> stride = call.getStride(), padding = call.getPadding(), dilation = call.getDilation();
  step.stride_h = stride[0], step.stride_w = stride[1];
  step.pad_top = padding[0], step.pad_left = padding[1], step.pad_bottom = padding[2], step.pad_right = padding[3];
  step.dilation_h = dilation[0], step.dilation_w = dilation[1];
  step.groups = static_cast<int64_t>(call.getGroups());
  step.dtype = plannedType(call.getResult().getType());
  return step;
}

void emit(SegmentBuilder &s, library::Conv2dOp call) {
  plan::ConvT step = convStep(s, call, call.getInput(), call.getResult(), call.getWeight());
  step.kind = plan::ConvKind::Forward;
  step.bias = optionalSlot(s, call.getBias());
  step.epilogue = epilogueOf(call.getEpilogue());
  s.step(call, std::move(step));
}

void emit(SegmentBuilder &s, ir::Conv2dInputGradOp call) {
  plan::ConvT step = convStep(s, call, call.getResult(), call.getGrad(), call.getWeight());
  step.kind = plan::ConvKind::BackwardData;
  s.step(call, std::move(step));
}

void emit(SegmentBuilder &s, library::Conv2dWeightGradOp call) {
  plan::ConvT step = convStep(s, call, call.getInput(), call.getGrad(), call.getResult());
  step.kind = plan::ConvKind::BackwardWeights;
  step.accumulate = call.getAccumulate();
  s.step(call, std::move(step));
}

/// The step of attention or of its gradients, without its outputs.
template <typename Op> plan::AttentionT attentionStep(SegmentBuilder &s, Op call) {
  plan::AttentionT step;
  step.q = s.view(call.getQ(), call.getQView());
  step.k = s.view(call.getK(), call.getKView());
  step.v = s.view(call.getV(), call.getVView());
  step.batch = call.getBatch(), step.heads = call.getHeads(), step.rows = call.getRows(), step.width = call.getWidth();
  step.keys = call.getKeys();
  step.scale = call.getScale().convertToDouble();
  step.causal = call.getCausal();
  if (call.getBias())
    step.bias = s.view(call.getBias(), *call.getBiasView());
  if (call.getKeep())
    step.keep = s.view(call.getKeep(), *call.getKeepView());
  step.dropout = call.getDropout().convertToDouble();
  step.dtype = plannedType(call->getResult(0).getType());
  return step;
}

void emit(SegmentBuilder &s, library::AttentionOp call) {
  plan::AttentionT step = attentionStep(s, call);
  step.kind = plan::AttentionKind::Forward;
  step.out = s.view(call.getResult(), call.getOutView());
  step.lse = call.getLse().use_empty() ? -1 : static_cast<int32_t>(s.slot(call.getLse()));
  s.step(call, std::move(step));
}

void emit(SegmentBuilder &s, library::AttentionGradOp call) {
  plan::AttentionT step = attentionStep(s, call);
  step.kind = plan::AttentionKind::Backward;
  step.dout = s.view(call.getGrad(), call.getGradView());
  step.out = s.view(call.getOut(), call.getOutView());
  step.lse = static_cast<int32_t>(s.slot(call.getLse()));
  step.dq = s.view(call.gradient(0), call.getDqView());
  step.dk = s.view(call.gradient(1), call.getDkView());
  step.dv = s.view(call.gradient(2), call.getDvView());
  s.step(call, std::move(step));
}

void emit(SegmentBuilder &s, library::EmbeddingGradOp call) {
  plan::EmbeddingGradT step;
  const Value table = call.getResult();
  step.ids = s.slot(call.getIds()), step.grad = s.slot(call.getGrad()), step.dtable = s.slot(table);
  step.rows = ir::shapeOf(table)[0], step.width = ir::shapeOf(table)[1];
  step.count = call.getIds().getType().getNumElements();
  step.start = scalarOf(s, call.getStart());
  step.accumulate = call.getAccumulate();
  step.dtype = plannedType(table.getType());
  s.step(call, std::move(step));
}

void emit(SegmentBuilder &s, library::CopyOp call) {
  plan::CopyT step;
  step.src = s.view(call.getSource(), call.getSourceView());
  step.dst = s.view(call.getResult(), call.getResultView());
  step.shape = call.getShape().vec();
  step.dtype = plannedType(call.getResult().getType());
  s.step(call, std::move(step));
}

/// `narrow`: the pooled side.
template <typename Op>
void emitPool(SegmentBuilder &s, Op call, plan::PoolKind kind, Value wide, Value narrow, Value workspace = {}) {
  plan::PoolT step;
  step.kind = kind;
  step.src = s.slot(wide), step.dst = s.slot(narrow);
  step.workspace = optionalSlot(s, workspace);
  step.nhwc = call.getChannelsLast();
  const auto in = channelsSecond(wide, step.nhwc), out = channelsSecond(narrow, step.nhwc);
  step.n = in[0], step.c = in[1], step.ih = in[2], step.iw = in[3], step.oh = out[2], step.ow = out[3];
  const ArrayRef<int64_t> kernel = call.getKernel(), stride = call.getStride(), padding = call.getPadding();
  step.kh = kernel[0], step.kw = kernel[1];
  step.stride_h = stride[0], step.stride_w = stride[1];
  step.pad_top = padding[0], step.pad_left = padding[1], step.pad_bottom = padding[2], step.pad_right = padding[3];
  step.include_padding = kind == plan::PoolKind::AverageForward || kind == plan::PoolKind::AverageBackward;
  step.dtype = plannedType(wide.getType());
  s.step(call, std::move(step));
}

void emit(SegmentBuilder &s, ir::MaxPool2dOp call) {
  emitPool(s, call, plan::PoolKind::MaxForward, call.getInput(), call.getResult(), call.getWorkspace());
}
void emit(SegmentBuilder &s, ir::MaxPool2dGradOp call) {
  emitPool(s, call, plan::PoolKind::MaxBackward, call.getResult(), call.getGrad(), call.getWorkspace());
}
void emit(SegmentBuilder &s, ir::AvgPool2dOp call) {
  emitPool(s, call, plan::PoolKind::AverageForward, call.getInput(), call.getResult());
}
void emit(SegmentBuilder &s, ir::AvgPool2dGradOp call) {
  emitPool(s, call, plan::PoolKind::AverageBackward, call.getResult(), call.getGrad());
}

} // namespace

bool emitLibraryCall(SegmentBuilder &s, Operation *op) {
  return llvm::TypeSwitch<Operation *, bool>(op)
      .Case<library::MatmulOp, library::Conv2dOp, ir::Conv2dInputGradOp, library::Conv2dWeightGradOp,
            library::AttentionOp, library::AttentionGradOp, library::EmbeddingGradOp, library::CopyOp, ir::MaxPool2dOp,
            ir::MaxPool2dGradOp, ir::AvgPool2dOp, ir::AvgPool2dGradOp>([&](auto call) { return emit(s, call), true; })
      .Default(false);
}

} // namespace cleave::passes
