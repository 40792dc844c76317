// Cuts a function into segments: forward ops, and backward ops; if the schedule splits the backward pass, those that
// another stage waits for, and the others, which are products of weights and what needs nothing else to be kept.
#include "partitioner/apply/Segments.h"

#include "ir/dist/Dist.h"
#include "ir/graph/Graph.h"
#include "partitioner/annotate/Rematerialised.h"
#include "partitioner/stages/Layers.h"
#include "runtime/base/Error.h"

#include <fmt/format.h>

using namespace mlir;

namespace cleave::partitioner {

static bool isBackward(Operation *op) { return op->hasAttr(ir::attr::phase); }

namespace {

/// Finds the ops of a backward pass for which another part of it waits, a stage or a layer, and those that belong to
/// the same pass because the gradients of weights would otherwise keep more.
class InputGradients {
public:
  /// `part`: the attribute that names the part of an op.
  InputGradients(func::FuncOp func, StringRef part) : func(func), part(part) {}

  std::set<Operation *> find() {
    findSums();
    markInputGradients();
    markReductions();
    return std::move(early);
  }

private:
  func::FuncOp func;
  const StringRef part;
  std::set<Operation *> early;
  std::set<Operation *> sums; // whose results only other sums and the return read

  Attribute partOf(Operation *op) const {
    if (part == ir::attr::stage)
      return Builder(op->getContext()).getI64IntegerAttr(ir::stageOf(op));
    return op->getAttr(part);
  }

  // Layers do not wait for the sum of a gradient to which several of them add.
  void findSums() {
    for (Operation &op : llvm::reverse(func.getBody().front().without_terminator()))
      if (part == ir::attr::layer && isa<ir::AddOp, ir::CastOp, dist::ReshardOp>(op) &&
          llvm::all_of(op.getUsers(), [&](Operation *user) { return isa<func::ReturnOp>(user) || sums.count(user); }))
        sums.insert(&op);
  }

  // Marks backward ops on which a value of another part depends.
  void markInputGradients() {
    for (Operation &op : func.getBody().front().without_terminator())
      if (isBackward(&op) && llvm::any_of(op.getUsers(), [&](Operation *user) {
            return !isa<func::ReturnOp>(user) && !sums.count(user) && partOf(user) != partOf(&op);
          }))
        markWithOperands(&op);
  }

  // Marks, of the other backward ops, the reductions of values that no product of weights keeps for the later pass: the
  // gradients of a norm's weights read values as large as all that is kept otherwise.
  void markReductions() {
    std::vector<Operation *> late;
    for (Operation &op : func.getBody().front().without_terminator())
      if (isBackward(&op) && !early.count(&op))
        late.push_back(&op);
    std::set<Operation *> heavy; // products, what they read and what reads them
    const auto isHeavy = [&](Operation *op) { return op && heavy.count(op); };
    for (Operation *op : late)
      if (flopsOf(op) > 0 || isa<ir::EmbeddingGradOp, ir::ScatterAddOp>(op) ||
          llvm::any_of(op->getOperands(), [&](Value operand) { return isHeavy(operand.getDefiningOp()); }))
        heavy.insert(op);
    for (Operation *op : llvm::reverse(late))
      if (llvm::any_of(op->getUsers(), isHeavy))
        heavy.insert(op);
    DenseSet<Value> kept;
    for (Operation *op : heavy)
      addEarly(op, kept);
    std::map<Operation *, DenseSet<Value>> reads; // early values, of light ops
    for (Operation *op : late) {
      if (isHeavy(op))
        continue;
      DenseSet<Value> &own = reads[op];
      addEarly(op, own);
      bool readsHeavy = false;
      for (Value operand : op->getOperands()) {
        Operation *def = operand.getDefiningOp();
        readsHeavy |= isHeavy(def);
        if (const auto found = reads.find(def); found != reads.end())
          own.insert(found->second.begin(), found->second.end());
      }
      if (readsHeavy)
        heavy.insert(op);
      else if (llvm::any_of(own, [&](Value value) { return !kept.contains(value); }))
        markWithOperands(op);
    }
  }

  // Adds the values of the early pass that an op reads, also through ops that are repeated where they are read.
  void addEarly(Operation *op, DenseSet<Value> &values) const {
    for (Value operand : op->getOperands()) {
      Operation *def = operand.getDefiningOp();
      if (!def || !early.count(def))
        continue;
      if (isRematerialised(def, false))
        addEarly(def, values);
      else
        values.insert(operand);
    }
  }

  // Marks an op, and the backward ops of its part that it depends on.
  void markWithOperands(Operation *op) {
    std::vector<Operation *> work{op};
    while (!work.empty()) {
      Operation *next = work.back();
      work.pop_back();
      if (!early.insert(next).second)
        continue;
      for (Value operand : next->getOperands())
        if (Operation *def = operand.getDefiningOp(); def && isBackward(def) && partOf(def) == partOf(next))
          work.push_back(def);
    }
  }
};

class Cutter {
public:
  Cutter(func::FuncOp func, const Decisions &strategy, SegmentNumbers &next)
      : func(func), strategy(strategy), next(next) {}

  Segmentation run() {
    const bool split = strategy.backward() == BackwardPass::Split;
    const std::set<Operation *> early = split ? InputGradients(func, ir::attr::stage).find() : std::set<Operation *>();
    for (Operation &op : func.getBody().front().without_terminator()) {
      SegmentKey key{ir::stageOf(&op), !isBackward(&op)   ? SegmentKind::Forward
                                       : !split           ? SegmentKind::Backward
                                       : early.count(&op) ? SegmentKind::InputGradient
                                                          : SegmentKind::WeightGradient};
      cut.place[&op] = key;
      cut.ops[key].push_back(&op);
    }
    for (Operation &op : func.getBody().front().without_terminator())
      if (!isRematerialised(&op, false))
        for (Value operand : op.getOperands())
          need(operand, cut.place[&op]);
    // A result is needed in the segment that computes it; for a view, its source is needed there.
    for (Value result : func.getBody().front().getTerminator()->getOperands())
      if (Operation *def = result.getDefiningOp())
        need(result, cut.place[def]);
    finish();
    return std::move(cut);
  }

private:
  func::FuncOp func;
  const Decisions &strategy;
  SegmentNumbers &next;
  Segmentation cut;
  std::vector<Value> order;                    // keys of `needs`, in order of discovery
  DenseMap<Value, std::set<SegmentKey>> needs; // other segments that need a value

  // Records that segment `at` reads `value`.
  void need(Value value, SegmentKey at) {
    Operation *def = value.getDefiningOp();
    if (!def)
      return; // available in every segment
    SegmentKey made = cut.place.at(def);
    bool otherStage = made.stage != at.stage;
    if (isRematerialised(def, otherStage)) {
      for (Value operand : def->getOperands())
        need(operand, at);
      return;
    }
    if (made == at)
      return;
    if (otherStage && made.kind == SegmentKind::Forward && at.kind == SegmentKind::Forward && at.stage < made.stage)
      throw userError(fmt::format("stages: stage {} needs a value of stage {} in its forward pass; stages must follow "
                                  "the order in which the model runs",
                                  at.stage, made.stage));
    if (!otherStage && at.kind < made.kind)
      throw Error(Status::Internal,
                  fmt::format("{} is made in a later segment than one that needs it", stashName(value, 0)));
    auto [entry, added] = needs.try_emplace(value);
    entry->second.insert(at);
    if (!added)
      return;
    order.push_back(value);
    if (isRematerialised(def, false)) // its own segment rematerialises it for sending
      for (Value operand : def->getOperands())
        need(operand, made);
  }

  // Sorts values in the order in which SegmentEmitter sends them: as they are computed, rematerialised values at the
  // end.
  void sortBySending(std::vector<Value> &values) const {
    llvm::stable_sort(values, [](Value a, Value b) {
      Operation *makerA = a.getDefiningOp(), *makerB = b.getDefiningOp();
      if (makerA == makerB)
        return cast<OpResult>(a).getResultNumber() < cast<OpResult>(b).getResultNumber();
      const bool late = isRematerialised(makerB, false);
      return isRematerialised(makerA, false) == late ? makerA->isBeforeInBlock(makerB) : late;
    });
  }

  void finish() {
    struct Receiver {
      Value value;
      int64_t stage;
      std::vector<SegmentKind> segments; // that need the value
    };
    std::vector<Receiver> receivers;
    std::map<std::pair<SegmentKey, int64_t>, SegmentKind> first; // by sending segment and receiving stage
    sortBySending(order);
    for (Value value : order) {
      SegmentKey made = cut.place.at(value.getDefiningOp());
      std::map<int64_t, std::vector<SegmentKind>> byStage;
      for (const SegmentKey &reader : needs[value])
        byStage[reader.stage].push_back(reader.kind);
      for (auto &[stage, segments] : byStage) {
        if (strategy.positionOf(stage) == strategy.positionOf(made.stage)) { // stages of the same ranks: no message
          if (stashAt(value, made.stage).empty())
            stashAt(value, made.stage) = stashName(value, next.stash++);
          stashAt(value, stage) = stashAt(value, made.stage);
          continue;
        }
        auto [found, added] = first.try_emplace({made, stage}, segments.front());
        found->second = std::min(found->second, segments.front());
        receivers.push_back({value, stage, segments});
      }
    }
    for (const auto &[value, stage, segments] : receivers) {
      const SegmentKey made = cut.place.at(value.getDefiningOp());
      const SegmentKind by = first.at({made, stage});
      cut.crossingsOf[value.getAsOpaquePointer()].push_back(cut.crossings.size());
      cut.crossings.push_back({value, made.stage, stage, next.tag++, made.kind, by});
      if (segments != std::vector{by})
        stashAt(value, stage) = stashName(value, next.stash++);
    }
  }

  std::string &stashAt(Value value, int64_t stage) { return cut.stashes[{value.getAsOpaquePointer(), stage}]; }

  static std::string stashName(Value value, int64_t number) {
    auto path = value.getDefiningOp()->getAttrOfType<StringAttr>(ir::attr::path);
    return fmt::format("{}{}#{}", path ? path.str() + "." : "", value.getDefiningOp()->getName().stripDialect().str(),
                       number);
  }
};

} // namespace

void markRoles(func::FuncOp func, const Decisions &strategy) {
  const bool split = strategy.backward() == BackwardPass::Split;
  const std::set<Operation *> early = InputGradients(func, split ? ir::attr::stage : ir::attr::layer).find();
  for (Operation &op : func.getBody().front().without_terminator())
    if (isBackward(&op) && !early.count(&op) && !op.hasAttr(ir::attr::role))
      op.setAttr(ir::attr::role, StringAttr::get(func.getContext(), ir::role::weightGradient));
}

Segmentation cutSegments(func::FuncOp func, const Decisions &strategy, SegmentNumbers &next) {
  return Cutter(func, strategy, next).run();
}

} // namespace cleave::partitioner
