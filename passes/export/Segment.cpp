// Converts a fused local function to the steps of a segment.
#include "passes/export/Segment.h"

#include "ir/dist/Dist.h"
#include "ir/graph/Graph.h"
#include "passes/export/Batches.h"
#include "passes/select/Select.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/Segments.h"

#include <algorithm>

using namespace mlir;

namespace cleave::passes {

std::vector<std::string> axesOf(ArrayAttr axes) {
  std::vector<std::string> names;
  for (Attribute axis : axes)
    names.push_back(cast<StringAttr>(axis).getValue().str());
  return names;
}

std::unique_ptr<plan::ViewT> SegmentBuilder::wholeSlot(uint32_t slot) const {
  auto made = std::make_unique<plan::ViewT>();
  made->slot = slot;
  const auto &shape = program.program->slots[slot]->shape;
  made->strides = Strided::contiguous(shape).strides;
  return made;
}

std::unique_ptr<plan::ViewT> SegmentBuilder::view(Value value) const {
  auto made = std::make_unique<plan::ViewT>();
  made->slot = slot(value);
  made->strides = Strided::contiguous(cast<RankedTensorType>(value.getType()).getShape().vec()).strides;
  return made;
}

std::unique_ptr<plan::ViewT> SegmentBuilder::view(Value value, library::ViewAttr window) const {
  return view(value, window.getOffset(), window.getStrides());
}

std::unique_ptr<plan::ViewT> SegmentBuilder::view(Value value, int64_t offset, ArrayRef<int64_t> strides) const {
  auto made = std::make_unique<plan::ViewT>();
  made->slot = slot(value);
  made->offset = static_cast<uint64_t>(offset) * dtypeSize(plannedType(value.getType()));
  made->strides = strides.vec();
  return made;
}

/// The role of a step whose op has none.
static plan::StepRole usualRole(plan::SegmentKind kind) {
  switch (kind) {
  case plan::SegmentKind::Backward:
  case plan::SegmentKind::InputGradient:
    return plan::StepRole::InputGradient;
  case plan::SegmentKind::WeightGradient:
    return plan::StepRole::WeightGradient;
  case plan::SegmentKind::Reduce:
    return plan::StepRole::Gradients;
  case plan::SegmentKind::Update:
    return plan::StepRole::Optimizer;
  case plan::SegmentKind::Begin:
    return plan::StepRole::Parameters;
  case plan::SegmentKind::Weights:
  case plan::SegmentKind::ReduceWeights:
    return plan::StepRole::Metrics;
  case plan::SegmentKind::Forward:
  case plan::SegmentKind::Eval:
    break;
  }
  return plan::StepRole::Forward;
}

/// An op that has no layer, because no op of the model became it, belongs in the passes to the layer of the step
/// before.
void SegmentBuilder::describe(Operation *from, plan::StepT &step) const {
  const auto textOf = [&](StringRef name) {
    auto text = from->getAttrOfType<StringAttr>(name);
    return text ? text.getValue() : StringRef();
  };
  const StringRef role = textOf(ir::attr::role), layer = textOf(ir::attr::layer), last = textOf(ir::attr::lastLayer);
  step.role = role == ir::role::weightGradient ? plan::StepRole::WeightGradient
              : role == ir::role::gradients    ? plan::StepRole::Gradients
              : role == ir::role::parameters   ? plan::StepRole::Parameters
              : role == ir::role::metrics      ? plan::StepRole::Metrics
                                               : usualRole(draft.segment->kind);
  if (!layer.empty())
    step.layer = program.tables.string(layer.str());
  else if (phaseOf(draft.segment->kind) == SegmentPhase::Microbatches && !draft.segment->steps.empty())
    step.layer = draft.segment->steps.back()->last_layer;
  else
    step.layer = program.tables.layerOf(textOf(ir::attr::parameter).str());
  step.last_layer = last.empty() ? step.layer : program.tables.string(last.str());
}

void SegmentBuilder::append(Operation *from, plan::StepOpUnion op) {
  auto step = std::make_unique<plan::StepT>();
  step->op = std::move(op);
  auto path = from->getAttrOfType<StringAttr>(ir::attr::path);
  step->path = program.tables.string(path ? path.getValue().str() : "");
  step->location = program.tables.string(locationOf(from->getLoc()));
  describe(from, *step);
  step->flops = steps::flops(*step);
  const std::vector<check::Access> accesses = check::accessesOf(*step);
  numberValues(from, *step, accesses);
  draft.segment->steps.push_back(std::move(step));
  std::vector<uint32_t> touched;
  for (const check::Access &access : accesses)
    touched.push_back(access.slot);
  std::sort(touched.begin(), touched.end());
  touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
  draft.touched.push_back(std::move(touched));
}

uint32_t SegmentBuilder::held(uint32_t slot) const {
  const auto found = holds.find(slot);
  return found == holds.end() ? slot : found->second;
}

uint32_t SegmentBuilder::valueOf(Value value) const {
  const auto found = numbers.find(slots.root(value));
  return found == numbers.end() ? slot(value) : found->second;
}

/// Numbers the values of a step. A slot that is read but holds no operand was written by an earlier step of the same
/// op.
void SegmentBuilder::numberValues(Operation *from, plan::StepT &step, ArrayRef<check::Access> accesses) {
  std::map<uint32_t, uint32_t> operands;
  for (Value operand : from->getOperands())
    if (slots.hasSlot(operand))
      operands.emplace(slot(operand), valueOf(operand));
  for (const check::Access &access : accesses) {
    uint32_t value = check::firstMade + made;
    if (access.kind == check::Access::Write) {
      holds[access.slot] = value;
      ++made;
    } else {
      const auto operand = operands.find(access.slot);
      value = operand == operands.end() ? held(access.slot) : operand->second;
    }
    step.values.push_back(value);
  }
}

void SegmentBuilder::finishOp(Operation *op) {
  for (Value result : op->getResults())
    if (slots.hasSlot(result))
      numbers[slots.root(result)] = held(slot(result));
}

uint32_t SegmentBuilder::finalValue(Value returned, uint32_t slot) const {
  return this->slot(returned) == slot ? valueOf(returned) : held(slot);
}

void SegmentBuilder::copySlot(Operation *from, uint32_t source, uint32_t destination) {
  plan::CopyT copy;
  copy.dtype = program.slot(destination).dtype;
  copy.shape = {static_cast<int64_t>(program.slot(destination).bytes / dtypeSize(copy.dtype))};
  for (auto [view, slot] : {std::pair(&copy.src, source), std::pair(&copy.dst, destination)}) {
    *view = std::make_unique<plan::ViewT>();
    (*view)->slot = slot;
    (*view)->strides = {1};
  }
  step(from, std::move(copy));
}

namespace {

/// Names of stashed values that the given segments read.
std::set<std::string> stashRead(ArrayRef<func::FuncOp> later) {
  std::set<std::string> names;
  for (func::FuncOp function : later)
    for (BlockArgument argument : function.getArguments())
      if (!argument.use_empty() && ir::argumentKind(argument) == ir::SlotKind::Stash)
        names.insert(ir::argumentText(argument, ir::attr::name).str());
  return names;
}

/// Copies named tensors that could not be written in place. Saves sources first if they are overwritten here.
void emitCopies(SegmentBuilder &s, func::FuncOp function) {
  Operation *end = function.front().getTerminator();
  const std::vector<SlotAssignment::Target> apart = s.slots.copies();
  std::set<uint32_t> destinations;
  for (const auto &copy : apart)
    destinations.insert(copy.slot);
  std::vector<std::pair<uint32_t, uint32_t>> copies;
  for (const auto &copy : apart) {
    Operation *from = copy.value.getDefiningOp();
    if (from && isa<ir::ConstantOp>(from)) {
      emitFill(s, from, copy.slot);
      continue;
    }
    uint32_t source = s.slot(copy.value);
    if (destinations.count(source)) {
      const uint32_t saved = s.slots.newCopy("saved " + s.program.slot(source).name, copy.value, source);
      s.copySlot(end, source, saved);
      source = saved;
    }
    copies.push_back({source, copy.slot});
  }
  for (auto [source, destination] : copies)
    s.copySlot(end, source, destination);
}

/// Records the values that the segment returns, and their slots.
void listLeaves(SegmentBuilder &s) {
  std::map<uint32_t, uint32_t> leaves;
  for (auto [value, slot] : s.slots.returned())
    leaves[slot] = s.finalValue(value, slot);
  for (auto [slot, value] : leaves)
    s.draft.segment->leaves.emplace_back(slot, value);
}

} // namespace

void ProgramBuilder::addSegment(func::FuncOp function, partitioner::SegmentId id, ArrayRef<func::FuncOp> later) {
  std::set<std::string> readLater = stashRead(later);
  SlotAssignment slots(*this, function, readLater);
  SegmentDraft &draft = newSegment(id);
  SegmentBuilder builder(*this, draft, slots);
  for (Operation &op : function.front())
    if (!isNoOp(&op, tables.mesh) && !isa<dist::ShardOffsetOp, func::ReturnOp>(op)) {
      emitOp(builder, &op);
      builder.finishOp(&op);
    }
  emitCopies(builder, function);
  listLeaves(builder);
  // Only segments that run once: in those of a microbatch, memory is reused before and after each step.
  if (batches && (draft.segment->kind == plan::SegmentKind::Begin || draft.segment->kind == plan::SegmentKind::Update))
    batchKernels(*this, draft);
  std::set<uint32_t> placed;
  for (const auto &touched : draft.touched)
    for (uint32_t index : touched)
      if (slot(index).space != plan::Space::Persistent)
        placed.insert(index);
  draft.segment->slots.assign(placed.begin(), placed.end());
}

} // namespace cleave::passes
