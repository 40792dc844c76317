// Steps of matrix products, convolutions, pooling, embedding gradients and strided copies.
#include "ir/graph/Graph.h"
#include "passes/export/Segment.h"

#include "llvm/ADT/StringSwitch.h"
#include "llvm/ADT/TypeSwitch.h"

#include <array>

using namespace mlir;

namespace cleave::passes {

namespace {

ArrayRef<int64_t> sizesOf(Value value) { return cast<RankedTensorType>(value.getType()).getShape(); }

/// Sizes as [n, c, h, w].
std::array<int64_t, 4> channelsSecond(Value value, bool last) {
  ArrayRef<int64_t> s = sizesOf(value);
  return last ? std::array{s[0], s[3], s[1], s[2]} : std::array{s[0], s[1], s[2], s[3]};
}

int32_t optionalSlot(SegmentBuilder &s, Value value) { return value ? static_cast<int32_t>(s.slot(value)) : -1; }

std::vector<uint32_t> slotsOf(SegmentBuilder &s, Operation *op) {
  std::vector<uint32_t> slots;
  for (Value operand : op->getOperands())
    if (s.slots.hasSlot(operand))
      slots.push_back(s.slot(operand));
  for (Value result : op->getResults())
    slots.push_back(s.slot(result));
  return slots;
}

plan::Epilogue epilogueOf(library::CallOp call) {
  auto name = call->getAttrOfType<StringAttr>("epilogue");
  return llvm::StringSwitch<plan::Epilogue>(name ? name.getValue() : "")
      .Case("relu", plan::Epilogue::Relu)
      .Case("gelu", plan::Epilogue::Gelu)
      .Case("gelu_gradient", plan::Epilogue::GeluGradient)
      .Default(plan::Epilogue::None);
}

void emitMatmul(SegmentBuilder &s, library::CallOp call) {
  plan::MatmulT step;
  Value result = call->getResult(0);
  step.a = s.view(call->getOperand(0), call.ints("a"));
  step.b = s.view(call->getOperand(1), call.ints("b"));
  step.c = s.view(result, call.ints("c"));
  step.batch = call.ints("batch").vec();
  ArrayRef<int64_t> mnk = call.ints("mnk");
  step.m = mnk[0], step.n = mnk[1], step.k = mnk[2];
  step.dtype = dtypeOf(result.getType());
  step.accumulate = call.accumulate();
  step.bias = optionalSlot(s, call.bias());
  step.epilogue = epilogueOf(call);
  const Value second = call->getNumResults() > 1 ? Value(call->getResult(1)) : Value();
  if (call->hasAttr("row_sums"))
    step.row_sums = optionalSlot(s, second);
  else if (Value aux = call.aux() ? call.aux() : second)
    step.aux = s.view(aux, call.ints("aux_view"));
  double flops = 2.0 * static_cast<double>(step.m) * static_cast<double>(step.n) * static_cast<double>(step.k);
  for (int64_t size : step.batch)
    flops *= static_cast<double>(size);
  s.step(call, std::move(step), slotsOf(s, call), flops);
}

/// Shapes: activations before and after, weights; the rest from the graph op's attributes.
void emitConv(SegmentBuilder &s, library::CallOp call, plan::ConvKind kind, Value src, Value dst, Value weights) {
  plan::ConvT step;
  step.kind = kind;
  step.src = s.slot(src), step.dst = s.slot(dst), step.weights = s.slot(weights);
  step.bias = optionalSlot(s, call.bias());
  step.epilogue = epilogueOf(call);
  step.nhwc = call->hasAttr(ir::channelsLast);
  const auto in = channelsSecond(src, step.nhwc), out = channelsSecond(dst, step.nhwc),
             kernel = channelsSecond(weights, step.nhwc);
  step.n = in[0], step.ic = in[1], step.ih = in[2], step.iw = in[3];
  step.oc = out[1], step.oh = out[2], step.ow = out[3];
  step.kh = kernel[2], step.kw = kernel[3];
  auto stride = intsOf(call, "stride"), padding = intsOf(call, "padding"), dilation = intsOf(call, "dilation");
  step.stride_h = stride[0], step.stride_w = stride[1];
  step.pad_top = padding[0], step.pad_left = padding[1], step.pad_bottom = padding[2], step.pad_right = padding[3];
  step.dilation_h = dilation[0], step.dilation_w = dilation[1];
  step.groups = intOf(call, "groups");
  step.accumulate = call.accumulate();
  step.dtype = dtypeOf(call->getResult(0).getType());
  double flops = 2;
  for (int64_t size : {step.n, step.oc, step.oh, step.ow, kernel[1], step.kh, step.kw})
    flops *= static_cast<double>(size);
  s.step(call, std::move(step), slotsOf(s, call), flops);
}

void emitAttention(SegmentBuilder &s, library::CallOp call, bool forward) {
  plan::AttentionT step;
  step.kind = forward ? plan::AttentionKind::Forward : plan::AttentionKind::Backward;
  unsigned next = 0;
  auto read = [&](StringRef name) { return s.view(call->getOperand(next++), call.ints(name)); };
  if (!forward)
    step.dout = read("dout");
  step.q = read("q"), step.k = read("k"), step.v = read("v");
  if (forward) {
    step.out = s.view(call->getResult(0), call.ints("out"));
    step.lse = call->getResult(1).use_empty() ? -1 : static_cast<int32_t>(s.slot(call->getResult(1)));
  } else {
    step.out = read("out");
    step.lse = static_cast<int32_t>(s.slot(call->getOperand(next)));
    const bool one = call->getNumResults() == 1;
    step.dq = s.view(call->getResult(0), call.ints("dq"));
    step.dk = s.view(call->getResult(one ? 0 : 1), call.ints("dk"));
    step.dv = s.view(call->getResult(one ? 0 : 2), call.ints("dv"));
  }
  ArrayRef<int64_t> sizes = call.ints("sizes");
  step.batch = sizes[0], step.heads = sizes[1], step.rows = sizes[2], step.width = sizes[3];
  step.keys = call.ints("keys")[0];
  step.scale = call->getAttrOfType<FloatAttr>("scale").getValueAsDouble();
  step.causal = call->hasAttr("causal");
  step.dtype = dtypeOf(call->getResult(0).getType());
  double flops = forward ? 4 : 10;
  for (int64_t size : {step.batch, step.heads, step.rows, step.keys, step.width})
    flops *= static_cast<double>(size);
  std::vector<uint32_t> touched = slotsOf(s, call);
  if (forward && step.lse < 0)
    touched.pop_back();
  s.step(call, std::move(step), touched, step.causal ? flops / 2 : flops);
}

void emitCopy(SegmentBuilder &s, library::CallOp call) {
  plan::CopyT step;
  step.src = s.view(call->getOperand(0), call.ints("src"));
  step.dst = s.view(call->getResult(0), call.ints("dst"));
  step.shape = call.ints("shape").vec();
  step.dtype = dtypeOf(call->getResult(0).getType());
  s.step(call, std::move(step), slotsOf(s, call));
}

/// `narrow`: the pooled side.
void emitPoolStep(SegmentBuilder &s, Operation *op, plan::PoolKind kind, Value wide, Value narrow, Value workspace) {
  plan::PoolT step;
  step.kind = kind;
  step.src = s.slot(wide), step.dst = s.slot(narrow);
  step.workspace = optionalSlot(s, workspace);
  step.nhwc = op->hasAttr(ir::channelsLast);
  const auto in = channelsSecond(wide, step.nhwc), out = channelsSecond(narrow, step.nhwc);
  step.n = in[0], step.c = in[1], step.ih = in[2], step.iw = in[3], step.oh = out[2], step.ow = out[3];
  auto kernel = intsOf(op, "kernel"), stride = intsOf(op, "stride"), padding = intsOf(op, "padding");
  step.kh = kernel[0], step.kw = kernel[1];
  step.stride_h = stride[0], step.stride_w = stride[1];
  step.pad_top = padding[0], step.pad_left = padding[1], step.pad_bottom = padding[2], step.pad_right = padding[3];
  step.include_padding = kind == plan::PoolKind::AverageForward || kind == plan::PoolKind::AverageBackward;
  step.dtype = dtypeOf(wide.getType());
  s.step(op, std::move(step), slotsOf(s, op));
}

} // namespace

void emitEmbeddingGrad(SegmentBuilder &s, library::CallOp call) {
  plan::EmbeddingGradT step;
  Value grad = call->getOperand(0), ids = call->getOperand(1), table = call->getResult(0), start;
  for (Value operand : call->getOperands().drop_front(2))
    if (!s.slots.hasSlot(operand)) // dist.shard_offset; `into` has a slot
      start = operand;
  step.ids = s.slot(ids), step.grad = s.slot(grad), step.dtable = s.slot(table);
  step.rows = sizesOf(table)[0], step.width = sizesOf(table)[1];
  step.count = cast<RankedTensorType>(ids.getType()).getNumElements();
  step.start = scalarOf(s, start);
  step.accumulate = call.accumulate();
  step.dtype = dtypeOf(table.getType());
  s.step(call, std::move(step), slotsOf(s, call));
}

bool emitLibraryCall(SegmentBuilder &s, library::CallOp call) {
  StringRef callee = call.callee();
  auto is = [&](auto op) { return callee == decltype(op)::getOperationName(); };
  Value result = call->getResult(0);
  if (is(ir::MatmulOp()))
    return emitMatmul(s, call), true;
  if (is(ir::Conv2dOp()))
    return emitConv(s, call, plan::ConvKind::Forward, call->getOperand(0), result, call->getOperand(1)), true;
  if (is(ir::Conv2dInputGradOp()))
    return emitConv(s, call, plan::ConvKind::BackwardData, result, call->getOperand(0), call->getOperand(1)), true;
  if (is(ir::Conv2dWeightGradOp()))
    return emitConv(s, call, plan::ConvKind::BackwardWeights, call->getOperand(1), call->getOperand(0), result), true;
  if (is(ir::AttentionOp()) || is(ir::AttentionGradOp()))
    return emitAttention(s, call, is(ir::AttentionOp())), true;
  if (is(ir::EmbeddingGradOp()))
    return emitEmbeddingGrad(s, call), true;
  if (callee == "copy")
    return emitCopy(s, call), true;
  return false;
}

bool emitPool(SegmentBuilder &s, Operation *op) {
  using plan::PoolKind;
  return llvm::TypeSwitch<Operation *, bool>(op)
      .Case([&](ir::MaxPool2dOp p) {
        return emitPoolStep(s, op, PoolKind::MaxForward, p.getInput(), p.getResult(), p.getWorkspace()), true;
      })
      .Case([&](ir::MaxPool2dGradOp p) {
        return emitPoolStep(s, op, PoolKind::MaxBackward, p.getResult(), p.getGrad(), p.getWorkspace()), true;
      })
      .Case([&](ir::AvgPool2dOp p) {
        return emitPoolStep(s, op, PoolKind::AverageForward, p.getInput(), p.getResult(), {}), true;
      })
      .Case([&](ir::AvgPool2dGradOp p) {
        return emitPoolStep(s, op, PoolKind::AverageBackward, p.getResult(), p.getGrad(), {}), true;
      })
      .Default(false);
}

} // namespace cleave::passes
