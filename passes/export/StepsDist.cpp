// Steps for distribution: collectives, messages, and slices of this rank's share.
#include "ir/dist/Dist.h"
#include "passes/export/Segment.h"
#include "passes/rewrite/Values.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace cleave::passes {

namespace {

plan::CollectiveT collective(SegmentBuilder &s, plan::CollectiveKind kind, ArrayAttr axes, Type type,
                             std::optional<ArrayRef<int64_t>> stages = std::nullopt) {
  plan::CollectiveT step;
  step.kind = kind;
  step.group = s.program.groupIndex({axesOf(axes), stages ? stages->vec() : std::vector<int64_t>()});
  step.axes = s.program.tables.axisIndices(axesOf(axes));
  step.dtype = plannedType(type);
  return step;
}

/// Tensors of different element types need separate steps.
void emitAllReduce(SegmentBuilder &s, dist::AllReduceOp op) {
  std::vector<plan::CollectiveT> steps;
  for (auto [input, result] : llvm::zip(op.getInputs(), op.getResults())) {
    size_t at = 0;
    while (at < steps.size() && steps[at].dtype != plannedType(input.getType()))
      ++at;
    if (at == steps.size()) {
      steps.push_back(collective(s, plan::CollectiveKind::AllReduce, op.getAxes(), input.getType(), op.getStages()));
      steps.back().reduce = planned(op.getReduction());
    }
    auto buffer = std::make_unique<plan::CollectiveBufferT>();
    buffer->in = s.slot(input), buffer->out = s.slot(result);
    buffer->count = cast<RankedTensorType>(input.getType()).getNumElements();
    steps[at].buffers.push_back(std::move(buffer));
  }
  for (plan::CollectiveT &step : steps)
    s.step(op, std::move(step));
}

/// `whole`: the value that contains all shares.
void emitShares(SegmentBuilder &s, Operation *op, plan::CollectiveT step, Value whole, int64_t dim,
                ArrayRef<int64_t> sizes) {
  auto buffer = std::make_unique<plan::CollectiveBufferT>();
  Value input = op->getOperand(0), result = op->getResult(0);
  buffer->in = s.slot(input), buffer->out = s.slot(result);
  buffer->outer = product(shapeOf(whole).take_front(static_cast<size_t>(dim)));
  buffer->inner = product(shapeOf(whole).drop_front(static_cast<size_t>(dim) + 1));
  buffer->count = product(shapeOf(whole));
  buffer->sizes = sizes.vec();
  step.buffers.push_back(std::move(buffer));
  s.step(op, std::move(step));
}

void emitAllGather(SegmentBuilder &s, dist::AllGatherOp op) {
  emitShares(s, op, collective(s, plan::CollectiveKind::AllGather, op.getAxes(), op.getInput().getType()),
             op.getResult(), static_cast<int64_t>(op.getDim()), op.getSizes());
}

void emitReduceScatter(SegmentBuilder &s, dist::ReduceScatterOp op) {
  auto step = collective(s, plan::CollectiveKind::ReduceScatter, op.getAxes(), op.getInput().getType());
  step.reduce = planned(op.getReduction());
  emitShares(s, op, std::move(step), op.getInput(), static_cast<int64_t>(op.getDim()), op.getSizes());
}

void emitAllToAll(SegmentBuilder &s, dist::AllToAllOp op) {
  auto step = collective(s, plan::CollectiveKind::AllToAll, op.getAxes(), op.getInput().getType());
  auto buffer = std::make_unique<plan::CollectiveBufferT>();
  buffer->in = s.slot(op.getInput()), buffer->out = s.slot(op.getResult());
  buffer->count = product(shapeOf(op.getInput()));
  step.buffers.push_back(std::move(buffer));
  s.step(op, std::move(step));
}

/// [lead x outer, size, inner x trail] -> this rank's share of `size`; its start is in the rank's table.
void emitShardSlice(SegmentBuilder &s, dist::ShardSliceOp op) {
  ArrayRef<int64_t> shape = shapeOf(op.getInput());
  size_t dim = static_cast<size_t>(op.getDim());
  int64_t rows = product(shape.take_front(dim)) * static_cast<int64_t>(op.getOuter());
  int64_t inner = static_cast<int64_t>(op.getInner()) * product(shape.drop_front(dim + 1));
  int64_t size = static_cast<int64_t>(op.getSize());
  int64_t share = product(shapeOf(op.getResult())) / std::max<int64_t>(1, rows * inner);
  plan::CopyT step;
  step.shape = {rows, share * inner};
  step.src = s.view(op.getInput(), 0, {size * inner, 1});
  step.dst = s.view(op.getResult(), 0, {share * inner, 1});
  step.dtype = plannedType(op.getInput().getType());
  step.src_offset_scalar = static_cast<int32_t>(s.program.scalarIndex({size, inner, axesOf(op.getAxes())}));
  s.step(op, std::move(step));
}

int64_t channelOf(const SegmentBuilder &s, uint64_t tag) {
  const auto found = s.program.channels.find(static_cast<int64_t>(tag));
  return found == s.program.channels.end() ? 0 : found->second;
}

/// A named tensor may be overwritten before the message has left, so a copy is sent.
void emitSend(SegmentBuilder &s, dist::SendOp op) {
  uint32_t slot = s.slot(op.getInput());
  if (s.program.slot(slot).space == plan::Space::Persistent) {
    const uint32_t copy = s.slots.newCopy("sent " + s.program.slot(slot).name, op.getInput(), slot);
    s.copySlot(op, slot, copy);
    slot = copy;
  }
  plan::SendT step;
  step.slot = slot;
  step.bytes = s.program.slot(slot).bytes;
  const int64_t channel = channelOf(s, op.getTag());
  step.peer = s.program.peerIndex(static_cast<int64_t>(op.getStage()), channel);
  step.channel = static_cast<uint32_t>(channel);
  step.tag = static_cast<uint32_t>(op.getTag());
  s.program.sentSlots.insert(slot);
  s.draft.sends.push_back({slot, step.tag, s.draft.touched.size()});
  s.step(op, std::move(step));
}

void emitRecv(SegmentBuilder &s, dist::RecvOp op) {
  plan::RecvT step;
  step.slot = s.slot(op.getResult());
  step.bytes = s.program.slot(step.slot).bytes;
  const int64_t channel = channelOf(s, op.getTag());
  step.peer = s.program.peerIndex(static_cast<int64_t>(op.getStage()), channel);
  step.channel = static_cast<uint32_t>(channel);
  step.tag = static_cast<uint32_t>(op.getTag());
  s.step(op, std::move(step));
}

} // namespace

bool emitMessage(SegmentBuilder &s, Operation *op) {
  return llvm::TypeSwitch<Operation *, bool>(op)
      .Case([&](dist::AllReduceOp o) { return emitAllReduce(s, o), true; })
      .Case([&](dist::AllGatherOp o) { return emitAllGather(s, o), true; })
      .Case([&](dist::ReduceScatterOp o) { return emitReduceScatter(s, o), true; })
      .Case([&](dist::AllToAllOp o) { return emitAllToAll(s, o), true; })
      .Case([&](dist::ShardSliceOp o) { return emitShardSlice(s, o), true; })
      .Case([&](dist::SendOp o) { return emitSend(s, o), true; })
      .Case([&](dist::RecvOp o) { return emitRecv(s, o), true; })
      .Default(false);
}

} // namespace cleave::passes
