// The slots and rank tables of one program.
#include "passes/export/ProgramBuilder.h"

#include "ir/graph/Graph.h"
#include "passes/precision/LossScale.h"
#include "runtime/base/Error.h"
#include "runtime/plan/Segments.h"

#include <algorithm>

namespace cleave::passes {

static constexpr std::pair<ir::SlotKind, plan::TensorKind> namedKinds[] = {
    {ir::SlotKind::Input, plan::TensorKind::Input},       {ir::SlotKind::Parameter, plan::TensorKind::Parameter},
    {ir::SlotKind::Buffer, plan::TensorKind::Buffer},     {ir::SlotKind::State, plan::TensorKind::State},
    {ir::SlotKind::Gradient, plan::TensorKind::Gradient}, {ir::SlotKind::Scalar, plan::TensorKind::Scalar},
    {ir::SlotKind::Metric, plan::TensorKind::Metric}};

plan::TensorKind tensorKindOf(ir::SlotKind kind) {
  for (const auto &[slot, tensor] : namedKinds)
    if (slot == kind)
      return tensor;
  return plan::TensorKind::Activation;
}

ir::SlotKind keptKindOf(plan::TensorKind kind) {
  for (const ir::SlotKind kept :
       {ir::SlotKind::Parameter, ir::SlotKind::Buffer, ir::SlotKind::State, ir::SlotKind::Gradient})
    if (tensorKindOf(kept) == kind)
      return kept;
  return ir::SlotKind::None;
}

bool isPersistentKind(ir::SlotKind kind) {
  const plan::TensorKind tensorKind = tensorKindOf(kind);
  return kind == ir::SlotKind::Working || kind == ir::SlotKind::Output ||
         (tensorKind != plan::TensorKind::Activation && tensorKind != plan::TensorKind::Input);
}

plan::SegmentKind planned(partitioner::SegmentKind kind) {
  using partitioner::SegmentKind;
  switch (kind) {
  case SegmentKind::Begin:
  case SegmentKind::EvalBegin:
    return plan::SegmentKind::Begin;
  case SegmentKind::Weights:
    return plan::SegmentKind::Weights;
  case SegmentKind::ReduceWeights:
    return plan::SegmentKind::ReduceWeights;
  case SegmentKind::Forward:
    return plan::SegmentKind::Forward;
  case SegmentKind::Backward:
    return plan::SegmentKind::Backward;
  case SegmentKind::InputGradient:
    return plan::SegmentKind::InputGradient;
  case SegmentKind::WeightGradient:
    return plan::SegmentKind::WeightGradient;
  case SegmentKind::Reduce:
  case SegmentKind::EvalReduce:
  case SegmentKind::Finish:
    return plan::SegmentKind::Reduce;
  case SegmentKind::Update:
    return plan::SegmentKind::Update;
  case SegmentKind::Eval:
    return plan::SegmentKind::Eval;
  }
  llvm_unreachable("segment kind");
}

ProgramBuilder::ProgramBuilder(Tables &tables, KernelBuilder &kernels, const partitioner::RankClass &rankClass,
                               const partitioner::LocalPrograms &applied, bool batches)
    : tables(tables), kernels(kernels), coords(tables.mesh.coords(rankClass.ranks.front())), batches(batches),
      stages(applied.decisions.stagesAt(rankClass.position)) {
  for (const partitioner::LocalPrograms::Message &message : applied.messages)
    channels[message.tag] = message.channel;
  program->stage = static_cast<uint32_t>(rankClass.position);
}

SegmentDraft &ProgramBuilder::newSegment(partitioner::SegmentId id) {
  SegmentDraft &draft = segments.emplace_back();
  draft.id = id;
  draft.segment->name = id.str();
  draft.segment->kind = planned(id.kind);
  if (perMicrobatch(draft.segment->kind))
    draft.segment->stage = static_cast<int32_t>(stages.at(static_cast<size_t>(id.chunk)));
  return draft;
}

uint32_t ProgramBuilder::newSlot(const std::string &name, mlir::Type type, const Label &label, plan::Space space) {
  auto made = std::make_unique<plan::SlotT>();
  auto shape = llvm::cast<mlir::RankedTensorType>(type).getShape();
  made->name = name;
  made->dtype = plannedType(type);
  made->shape.assign(shape.begin(), shape.end());
  made->bytes = bytesOf(type);
  made->space = space;
  made->sharding = tables.sharding(label);
  program->slots.push_back(std::move(made));
  labels.push_back(label);
  return static_cast<uint32_t>(program->slots.size() - 1);
}

uint32_t ProgramBuilder::namedSlot(ir::SlotKind kind, const std::string &name, mlir::Type type, const Label &label) {
  plan::TensorKind tensorKind = tensorKindOf(kind);
  const bool input = tensorKind == plan::TensorKind::Input;
  // Evaluation may read another number of rows than training.
  auto [found, fresh] = named.try_emplace({kind, name, input ? label.global : std::vector<int64_t>()}, 0);
  if (fresh) {
    found->second = newSlot(name, type, label, input ? plan::Space::Input : plan::Space::Persistent);
    slot(found->second).tensor = -1;
    auto add = [&](std::vector<std::unique_ptr<plan::NamedSlotT>> &list) {
      auto &entry = list.emplace_back(std::make_unique<plan::NamedSlotT>());
      entry->slot = found->second;
      entry->name = name;
    };
    if (input)
      add(program->inputs);
    if (tensorKind == plan::TensorKind::Scalar)
      add(program->scalars);
    if (tensorKind == plan::TensorKind::Metric || kind == ir::SlotKind::Output ||
        (kind == ir::SlotKind::State && (name == lossScaleState || name == skippedStepsState)))
      add(program->metrics);
  }
  uint32_t index = found->second;
  if (slot(index).bytes != bytesOf(type))
    throw Error(Status::Internal, "plan export: " + std::string(text(kind)) + " \"" + name + "\" has " +
                                      std::to_string(slot(index).bytes) + " bytes in one segment and " +
                                      std::to_string(bytesOf(type)) + " in another");
  Label &known = labels[index];
  if (label.known && slot(index).tensor < 0) {
    known = label;
    slot(index).tensor = static_cast<int32_t>(tables.tensor(name, tensorKindOf(kind), slot(index).dtype, label.global));
    slot(index).sharding = tables.sharding(known);
  }
  // The slot is partial while it accumulates.
  if (known.sharding.partialAxes.empty() && !label.sharding.partialAxes.empty()) {
    known.sharding.partialAxes = label.sharding.partialAxes;
    known.sharding.partialKind = label.sharding.partialKind;
    slot(index).sharding = tables.sharding(known);
  }
  return index;
}

void ProgramBuilder::describe(uint32_t index, mlir::func::FuncOp function, unsigned argument) {
  if (slot(index).tensor < 0)
    return;
  plan::TensorT &tensor = tables.at(static_cast<uint32_t>(slot(index).tensor));
  if (auto init = function.getArgAttrOfType<ir::InitAttr>(argument, ir::attr::init); init && !tensor.init) {
    tensor.init = std::make_unique<plan::InitT>();
    tensor.init->kind = init.getDistribution() == "uniform"  ? plan::InitKind::Uniform
                        : init.getDistribution() == "normal" ? plan::InitKind::Normal
                                                             : plan::InitKind::Constant;
    tensor.init->a = storedNumber(init.getA());
    tensor.init->b = init.getB();
  }
  if (auto trainable = function.getArgAttrOfType<mlir::BoolAttr>(argument, ir::attr::trainable))
    tensor.trainable |= trainable.getValue();
  if (tensor.layer == tables.string("")) // outside the modules of the layers: of the first layer that reads it
    for (mlir::Operation &op : function.front())
      if (auto layer = op.getAttrOfType<mlir::StringAttr>(ir::attr::layer);
          layer && llvm::is_contained(op.getOperands(), mlir::Value(function.getArgument(argument)))) {
        tensor.layer = tables.string(layer.str());
        break;
      }
}

namespace {

template <class T> uint32_t indexIn(std::vector<T> &list, const T &entry) {
  auto found = std::find(list.begin(), list.end(), entry);
  if (found == list.end())
    found = list.insert(list.end(), entry);
  return static_cast<uint32_t>(found - list.begin());
}

} // namespace

uint32_t ProgramBuilder::scalarIndex(const ScalarSource &source) { return indexIn(scalars, source); }
uint32_t ProgramBuilder::groupIndex(const GroupAxes &group) { return indexIn(groups, group); }
uint32_t ProgramBuilder::peerIndex(int64_t position, int64_t channel) {
  return indexIn(peers, std::pair(position, channel));
}

std::unique_ptr<plan::RankT> ProgramBuilder::rank(uint32_t programIndex, const std::vector<int64_t> &at) {
  const Mesh &mesh = tables.mesh;
  auto made = std::make_unique<plan::RankT>();
  if (program->starts.empty())
    for (const ScalarSource &source : scalars) {
      auto &start = program->starts.emplace_back(std::make_unique<plan::ShardStartT>());
      start->size = source.size;
      start->scale = source.scale;
      start->axes = tables.axisIndices(source.axes);
    }
  made->program = programIndex;
  made->coords.assign(at.begin(), at.end());
  for (const ScalarSource &source : scalars)
    made->scalars.push_back(source.scale *
                            shareStart(source.size, mesh.size(source.axes), mesh.linear(source.axes, at)));
  for (const GroupAxes &group : groups)
    made->groups.push_back(tables.group(group, at));
  for (auto [position, channel] : peers) {
    made->peers.push_back(static_cast<uint32_t>(mesh.rank(mesh.with(AxisRole::Pipeline, position, at))));
  }
  return made;
}

} // namespace cleave::passes
