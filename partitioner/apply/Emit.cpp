// The computing segments of one class: forward, backward or input_gradient and weight_gradient, eval. (EmitEnds.cpp has
// the segments before and after the microbatches.)
#include "partitioner/apply/Emit.h"

#include "ir/Phase.h"
#include "ir/dist/Dist.h"
#include "ir/graph/Graph.h"
#include "partitioner/annotate/Annotate.h"
#include "partitioner/annotate/Rematerialised.h"
#include "partitioner/annotate/Reshard.h"
#include "partitioner/sharding/DataSplit.h"
#include "runtime/base/Error.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>

using namespace mlir;

namespace cleave::partitioner {

namespace {

/// The sharding in slices of 1 / tp in which a value that is replicated over tp is sent to another stage. Empty if the
/// value is sent whole (see Decisions::scatterGather).
std::optional<Sharding> slices(Value value, const Decisions &strategy) {
  const int64_t bytes = ir::tensorType(value).getNumElements() * ir::tensorType(value).getElementTypeBitWidth() / 8 /
                        strategy.mesh.size(AxisRole::Data);
  const int64_t from = strategy.scatterGather.value_or(0);
  if (from == 0 || strategy.mesh.size(AxisRole::Tensor) == 1 || bytes < from)
    return std::nullopt;
  return splitEvenly(shardingOf(value), ir::shapeOf(value).vec(), AxisRole::Tensor, strategy.mesh);
}

/// Emits the ops of one segment of @train or @eval.
class SegmentEmitter {
public:
  SegmentEmitter(const StepInfo &info, func::FuncOp source, const Segmentation &cut, SegmentKey key,
                 LocalFunction &local, WorkingCopies &copies)
      : info(info), source(source), cut(cut), key(key), local(local), copies(copies) {}

  void run() {
    findGradients();
    if (auto ops = cut.ops.find(key); ops != cut.ops.end())
      for (Operation *op : ops->second) {
        const bool onDemand = isRematerialised(op, false);
        if (!onDemand)
          emit(op);
        for (Value result : op->getResults()) {
          accumulateGradients(result);
          if (!onDemand)
            send(result);
        }
      }
    for (const Crossing &crossing : cut.crossings) // views of values, which the loop above does not emit
      if (cut.place.at(crossing.value.getDefiningOp()) == key &&
          isRematerialised(crossing.value.getDefiningOp(), false))
        send(crossing);
    returnStashes();
    returnResults();
  }

private:
  const StepInfo &info;
  func::FuncOp source;
  const Segmentation &cut;
  SegmentKey key;
  LocalFunction &local;
  WorkingCopies &copies; // working copies that the class needs
  DenseMap<Value, Value> values;
  DenseMap<Value, SmallVector<std::string, 1>> gradientsOf; // parameters to whose gradient sum a value is added
  std::map<std::string, Value> sums;                        // gradient sums by parameter

  void findGradients() {
    for (OpOperand &result : source.getBody().front().getTerminator()->getOpOperands()) {
      const unsigned i = result.getOperandNumber();
      Operation *maker = result.get().getDefiningOp();
      if (ir::resultKind(source, i) != ir::SlotKind::Gradient || !maker || cut.place.at(maker) != key)
        continue;
      const std::string name = ir::resultText(source, i, ir::attr::name).str();
      if (accumulates(name))
        gradientsOf[result.get()].push_back(name);
    }
  }

  // Adds a gradient to its sum at once, so that the gradient is not kept until the end of the segment.
  void accumulateGradients(Value value) {
    if (auto found = gradientsOf.find(value); found != gradientsOf.end())
      for (const std::string &name : found->second)
        sums[name] = add(ir::SlotKind::Gradient, info.sumName(name), value);
  }

  void emit(Operation *op) {
    SmallVector<Value> operands;
    for (Value operand : op->getOperands())
      operands.push_back(get(operand));
    SmallVector<Value> results = local.localiser.emit(op, operands);
    for (auto [global, piece] : llvm::zip_equal(op->getResults(), results))
      values[global] = piece;
  }

  std::vector<const Crossing *> crossingsOf(Value value) {
    std::vector<const Crossing *> list;
    if (auto found = cut.crossingsOf.find(value.getAsOpaquePointer()); found != cut.crossingsOf.end())
      for (size_t place : found->second)
        list.push_back(&cut.crossings[place]);
    return list;
  }

  const Crossing *crossingTo(Value value) {
    for (const Crossing *crossing : crossingsOf(value))
      if (crossing->to == key.stage)
        return crossing;
    return nullptr;
  }

  Value receive(Value value, const Crossing &crossing) {
    auto *def = value.getDefiningOp();
    const unsigned number = cast<OpResult>(value).getResultNumber();
    const std::optional<Sharding> sliced = slices(value, *info.strategy);
    const auto whole = cast<dist::ShardingAttr>(cast<ArrayAttr>(def->getAttr(dist::attr::shardings))[number]);
    const auto lies = sliced ? attributeOf(local.builder.getContext(), *sliced) : whole;
    auto op = dist::RecvOp::create(local.builder, value.getLoc(),
                                   sliced ? local.localiser.localType(*sliced, value.getType())
                                          : local.localiser.localType(value),
                                   info.strategy->positionOf(crossing.from), crossing.tag);
    const auto describe = [&](Operation *made, dist::ShardingAttr sharding) {
      ir::copyOrigin(def, made);
      made->setAttr(dist::attr::shardings, local.builder.getArrayAttr(sharding));
      made->setAttr(dist::attr::globals, local.builder.getArrayAttr(TypeAttr::get(value.getType())));
    };
    describe(op, lies);
    if (!sliced)
      return op.getResult();
    Value gathered = local.localiser.reshard(value.getLoc(), op.getResult(), *sliced, shardingOf(value));
    describe(gathered.getDefiningOp(), whole);
    return gathered;
  }

  // Receives all values that the segment that sends `one` sends to this stage, in the order of sending.
  void receiveAll(const Crossing &one) {
    for (const Crossing &crossing : cut.crossings)
      if (crossing.from == one.from && crossing.sentBy == one.sentBy && crossing.to == key.stage)
        values[crossing.value] = receive(crossing.value, crossing);
  }

  // The local piece of a value: already known, a slot, a working copy, recomputed here, received or stashed.
  Value get(Value value) {
    if (auto known = values.find(value); known != values.end())
      return known->second;
    if (auto argument = dyn_cast<BlockArgument>(value))
      return values[value] = local.slot(argument);
    Operation *def = value.getDefiningOp();
    if (std::string name = workingCopyName(def); !name.empty()) {
      copies.try_emplace(name, def);
      return values[value] = local.slot(ir::SlotKind::Working, name, value);
    }
    SegmentKey made = cut.place.at(def);
    if (isRematerialised(def, made.stage != key.stage)) {
      emit(def);
      return values[value];
    }
    const Crossing *crossing = crossingTo(value);
    if (crossing && crossing->receivedBy == key.kind) {
      receiveAll(*crossing);
      return values.at(value);
    }
    return values[value] =
               local.slot(ir::SlotKind::Stash, cut.stashes.at({value.getAsOpaquePointer(), key.stage}), value);
  }

  void send(Value value) {
    for (const Crossing *crossing : crossingsOf(value))
      if (crossing->from == key.stage)
        send(*crossing);
  }

  void send(const Crossing &crossing) {
    Value piece = get(crossing.value);
    if (const std::optional<Sharding> sliced = slices(crossing.value, *info.strategy)) {
      piece = local.localiser.reshard(crossing.value.getLoc(), piece, shardingOf(crossing.value), *sliced);
      ir::copyOrigin(crossing.value.getDefiningOp(), piece.getDefiningOp());
    }
    auto op = dist::SendOp::create(local.builder, crossing.value.getLoc(), piece,
                                   info.strategy->positionOf(crossing.to), crossing.tag);
    ir::copyOrigin(crossing.value.getDefiningOp(), op);
  }

  // Returns values that this segment computes or receives and a later segment of the stage reads.
  void returnStashes() {
    std::vector<std::pair<std::string, Value>> kept;
    for (auto &[id, name] : cut.stashes) {
      if (id.second != key.stage)
        continue;
      Value value = Value::getFromOpaquePointer(id.first);
      SegmentKey made = cut.place.at(value.getDefiningOp());
      const Crossing *crossing = made.stage == key.stage ? nullptr : crossingTo(value);
      if (crossing ? crossing->receivedBy == key.kind : made == key)
        kept.push_back({name, value});
    }
    std::sort(kept.begin(), kept.end(), [](auto &a, auto &b) { return a.first < b.first; });
    for (auto &[name, value] : kept)
      local.returns(ir::SlotKind::Stash, name, get(value));
  }

  void returnResults() {
    auto terminator = source.getBody().front().getTerminator();
    for (unsigned i = 0; i < terminator->getNumOperands(); ++i) {
      Value value = terminator->getOperand(i);
      Operation *def = value.getDefiningOp();
      const ir::SlotKind kind = ir::resultKind(source, i);
      const std::string name = ir::resultText(source, i, ir::attr::name).str();
      auto stage = source.getResultAttrOfType<IntegerAttr>(i, ir::attr::stage);
      SegmentKey made = def ? cut.place.at(def) : SegmentKey{stage ? stage.getInt() : 0, SegmentKind::Forward};
      if (made != key)
        continue;
      if (ir::isMetric(kind))
        local.returns(ir::SlotKind::Metric, ir::metricName(kind, name),
                      add(ir::SlotKind::Metric, ir::metricName(kind, name), value));
      else if (kind == ir::SlotKind::Gradient)
        local.returns(kind, info.sumName(name), sums.count(name) ? sums.at(name) : get(value));
      else if (kind == ir::SlotKind::Buffer || kind == ir::SlotKind::Output)
        local.returns(kind, name, get(value));
    }
  }

  // Whether a gradient has several terms on this rank: of microbatches, or of stages.
  bool accumulates(const std::string &name) const {
    return info.strategy->microbatches > 1 || info.terms.at({info.strategy->positionOf(key.stage), name}) > 1;
  }

  // Adds the value to the slot's accumulated sum.
  Value add(ir::SlotKind kind, const std::string &name, Value value) {
    Value slot = kind == ir::SlotKind::Metric ? local.slot(kind, name, cast<RankedTensorType>(value.getType()))
                                              : local.slot(kind, name, value);
    auto op = ir::AddOp::create(local.builder, value.getLoc(), slot, get(value));
    if (Operation *def = value.getDefiningOp())
      if (def->getNumResults() == 1) {
        ir::copyOrigin(def, op);
        if (Attribute found = def->getAttr(dist::attr::shardings))
          op->setAttr(dist::attr::shardings, found);
        op->setAttr(dist::attr::globals, local.builder.getArrayAttr(TypeAttr::get(value.getType())));
      }
    return op.getResult();
  }
};

std::vector<ReducedResult> totalsOf(func::FuncOp func, const Decisions &strategy, bool gradients) {
  std::vector<ReducedResult> totals;
  std::map<std::string, size_t> places;
  auto terminator = func.getBody().front().getTerminator();
  for (unsigned i = 0; i < terminator->getNumOperands(); ++i) {
    const ir::SlotKind kind = ir::resultKind(func, i);
    const std::string name = ir::resultText(func, i, ir::attr::name).str();
    if (gradients ? kind != ir::SlotKind::Gradient : !ir::isMetric(kind))
      continue;
    Value value = terminator->getOperand(i);
    auto marked = func.getResultAttrOfType<IntegerAttr>(i, ir::attr::stage);
    int64_t stage = value.getDefiningOp() ? ir::stageOf(value.getDefiningOp()) : marked ? marked.getInt() : 0;
    std::string key = gradients ? name : ir::metricName(kind, name);
    auto [place, added] = places.try_emplace(key, totals.size());
    if (added)
      totals.push_back({key, cast<RankedTensorType>(value.getType()), value, {}, {}, {}});
    ReducedResult &total = totals[place->second];
    for (const std::string &axis : shardingOf(value).partialAxes)
      if (!llvm::is_contained(total.partialAxes, axis))
        total.partialAxes.push_back(axis);
    total.makers.push_back(strategy.positionOf(stage));
  }
  return totals;
}

/// Collects the stages whose ops read an argument, looking through ops that are rematerialised at their use.
void collectReaders(Value argument, std::set<int64_t> &stages) {
  SmallVector<Value> work{argument};
  while (!work.empty())
    for (Operation *user : work.pop_back_val().getUsers()) {
      if (isa<func::ReturnOp>(user))
        continue;
      if (isRematerialised(user, true))
        work.push_back(user->getResult(0));
      else
        stages.insert(ir::stageOf(user));
    }
}

/// Collects the stages that give a buffer its new value, by the name of the buffer; none for one that keeps its value.
void collectMakers(func::FuncOp func, std::map<std::string, std::set<int64_t>> &stages) {
  for (OpOperand &result : func.getBody().front().getTerminator()->getOpOperands()) {
    const unsigned i = result.getOperandNumber();
    const StringRef name = ir::resultText(func, i, ir::attr::name);
    auto argument = dyn_cast<BlockArgument>(result.get());
    if (ir::resultKind(func, i) != ir::SlotKind::Buffer ||
        (argument && ir::argumentText(argument, ir::attr::name) == name))
      continue;
    auto marked = func.getResultAttrOfType<IntegerAttr>(i, ir::attr::stage);
    stages[name.str()].insert(!argument ? ir::stageOf(result.get().getDefiningOp()) : marked ? marked.getInt() : 0);
  }
}

/// Finds the owners of parameters and buffers: a stage owns what its ops read, in training or in evaluation. (An op may
/// be in another stage in evaluation, for example if the dropout before it is removed and it joins the next layer.)
void findOwners(StepInfo &info) {
  std::map<std::string, std::set<int64_t>> readers, makers; // makers: of buffers that change
  std::set<std::string> unread;
  for (func::FuncOp func : {info.train, info.eval}) {
    if (!func)
      continue;
    for (BlockArgument argument : func.getArguments()) {
      const ir::SlotKind kind = ir::argumentKind(argument);
      const std::string name = ir::argumentText(argument, ir::attr::name).str();
      if (kind != ir::SlotKind::Parameter && kind != ir::SlotKind::Buffer)
        continue;
      collectReaders(argument, readers[name]);
    }
    collectMakers(func, makers);
  }
  for (auto &[name, stages] : readers) {
    const auto changed = makers.find(name);
    if (changed != makers.end())
      stages.insert(changed->second.begin(), changed->second.end());
    if (stages.empty())
      unread.insert(name), stages.insert(0);
    std::set<int64_t> positions;
    for (const int64_t stage : stages)
      positions.insert(info.strategy->positionOf(stage));
    if (changed != makers.end() && stages.size() > 1)
      throw userError(
          fmt::format("stages: buffer \"{}\", which changes, is used in stages {} and {}; a module with such "
                      "a buffer must be in one stage",
                      name, *stages.begin(), *stages.rbegin()));
    info.homes[name] = *stages.begin();
    info.owners[name].assign(positions.begin(), positions.end());
  }
  if (!info.update) // a prediction, which writes no checkpoints
    return;
  for (BlockArgument argument : info.update.getArguments())
    unread.erase(ir::argumentText(argument, ir::attr::name).str());
  for (BlockArgument argument : info.train.getArguments())
    if (unread.count(ir::argumentText(argument, ir::attr::name).str()))
      info.unread.push_back(argument);
}

} // namespace

std::string StepInfo::sumName(const std::string &parameter) const {
  return scattered.count(parameter) ? parameter + ".sum" : parameter;
}

/// Gradients that @update reads in another sharding than @train returns them, and the sharding that @update reads.
static std::map<std::string, Sharding> scatteredGradients(StepInfo &info) {
  std::map<std::string, Sharding> left, scattered;
  if (!info.update) // a prediction
    return scattered;
  for (const ReducedResult &gradient : info.gradients)
    left[gradient.name] = shardingOf(gradient.value);
  for (BlockArgument argument : info.update.getArguments()) {
    const auto found = left.find(ir::argumentText(argument, ir::attr::name).str());
    if (ir::argumentKind(argument) == ir::SlotKind::Gradient && found != left.end() &&
        shardingOf(argument).dims != found->second.dims)
      scattered[found->first] = shardingOf(argument);
  }
  return scattered;
}

StepInfo describeStep(ModuleOp annotated, const Decisions &strategy) {
  StepInfo info;
  info.strategy = &strategy;
  if (auto type = annotated->getAttrOfType<TypeAttr>(ir::attr::reduceDtype))
    info.reduceType = type.getValue();
  info.train = annotated.lookupSymbol<func::FuncOp>("train");
  info.update = annotated.lookupSymbol<func::FuncOp>("update");
  info.eval = annotated.lookupSymbol<func::FuncOp>("eval");
  info.weights = annotated.lookupSymbol<func::FuncOp>("weights");
  SegmentNumbers next;
  markRoles(info.train, strategy);
  info.trainCut = cutSegments(info.train, strategy, next);
  if (info.eval)
    info.evalCut = cutSegments(info.eval, strategy, next);
  if (info.weights)
    info.weightsCut = cutSegments(info.weights, strategy, next);
  findOwners(info);
  info.metrics = totalsOf(info.train, strategy, false);
  info.gradients = totalsOf(info.train, strategy, true);
  if (info.eval)
    info.evalMetrics = totalsOf(info.eval, strategy, false);
  if (info.weights)
    info.weightMetrics = totalsOf(info.weights, strategy, false);
  info.scattered = scatteredGradients(info);
  for (ReducedResult &gradient : info.gradients) {
    std::set<int64_t> positions(gradient.makers.begin(), gradient.makers.end());
    const std::vector<int64_t> &owners = info.owners.at(gradient.name);
    positions.insert(owners.begin(), owners.end());
    gradient.positions.assign(positions.begin(), positions.end());
    for (const int64_t position : gradient.makers)
      ++info.terms[{position, gradient.name}];
  }
  return info;
}

void emitClass(const StepInfo &info, ModuleOp module, RankClass &rankClass, const std::vector<int64_t> &coords) {
  const Mesh &mesh = info.strategy->mesh;
  const std::vector<int64_t> stages = info.strategy->stagesAt(rankClass.position);
  // Emits the ops of segment kind `kind` on each of the rank's stages, as segments of kind `as`.
  auto compute = [&](SegmentKind as, func::FuncOp source, const Segmentation &cut, SegmentKind kind,
                     WorkingCopies &copies) {
    for (size_t chunk = 0; chunk < stages.size(); ++chunk) {
      LocalFunction local(module, rankClass, {as, static_cast<int64_t>(chunk)}, mesh, coords);
      SegmentEmitter(info, source, cut, {stages[chunk], kind}, local, copies).run();
      local.finish(rankClass);
    }
  };
  LocalFunction begin(module, rankClass, {SegmentKind::Begin}, mesh, coords);
  WorkingCopies copies;
  if (info.weights) {
    compute(SegmentKind::Weights, info.weights, info.weightsCut, SegmentKind::Forward, copies);
    emitReduceWeights(info, module, rankClass, coords);
  }
  for (SegmentKind kind :
       {SegmentKind::Forward, SegmentKind::Backward, SegmentKind::InputGradient, SegmentKind::WeightGradient})
    compute(kind, info.train, info.trainCut, kind, copies);
  emitBegin(info, begin, rankClass, copies, false);
  emitReduce(info, module, rankClass, coords, false);
  if (info.update)
    emitUpdate(info, module, rankClass, coords);
  if (!info.eval)
    return;
  LocalFunction evalBegin(module, rankClass, {SegmentKind::EvalBegin}, mesh, coords);
  WorkingCopies evalCopies;
  compute(SegmentKind::Eval, info.eval, info.evalCut, SegmentKind::Forward, evalCopies);
  emitBegin(info, evalBegin, rankClass, evalCopies, true);
  emitReduce(info, module, rankClass, coords, true);
}

} // namespace cleave::partitioner
