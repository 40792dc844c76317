// Cuts a function into segments: forward ops; backward ops that another stage waits for; the other backward ops.
#include "partitioner/apply/Segments.h"

#include "ir/dist/Dist.h"
#include "ir/graph/Graph.h"
#include "runtime/base/Error.h"

#include <fmt/format.h>

using namespace mlir;

namespace cleave::partitioner {

static bool isBackward(Operation *op) { return op->hasAttr(ir::attr::phase); }

/// Whether a forward op casts a half type to f32. The backward pass stashes the half value instead of the result.
static bool isWidening(ir::CastOp cast) {
  Type from = getElementTypeOrSelf(cast.getInput());
  return (from.isF16() || from.isBF16()) && getElementTypeOrSelf(cast.getResult()).isF32() && !isBackward(cast);
}

bool isRemade(Operation *op, bool otherStage) {
  if (isa<ir::ConstantOp, ir::IotaOp, ir::BroadcastOp>(op))
    return true;
  if (auto cast = dyn_cast<ir::CastOp>(op); cast && (isa<BlockArgument>(cast.getInput()) || isWidening(cast)))
    return true; // a parameter in another type, or an activation
  return !otherStage && isa<ir::ReshapeOp, ir::TransposeOp, ir::SliceOp>(op);
}

int64_t stageOf(Operation *op) {
  auto stage = op->getAttrOfType<IntegerAttr>(ir::attr::stage);
  return stage ? stage.getInt() : 0;
}

namespace {

class Cutter {
public:
  Cutter(func::FuncOp func, int64_t &tag) : func(func), tag(tag) {}

  Segmentation run() {
    markInputGradients();
    for (Operation &op : func.getBody().front().without_terminator()) {
      SegmentKey key{stageOf(&op), !isBackward(&op) ? Forward : early.count(&op) ? InputGradient : WeightGradient};
      cut.place[&op] = key;
      cut.ops[key].push_back(&op);
    }
    for (Operation &op : func.getBody().front().without_terminator())
      if (!isRemade(&op, false))
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
  int64_t &tag;
  Segmentation cut;
  std::set<Operation *> early;
  std::vector<Value> order;                                 // keys of `needs`, in order of discovery
  DenseMap<Value, std::set<std::pair<int64_t, int>>> needs; // other segments that need a value

  // Marks backward ops on which a value of another stage depends.
  void markInputGradients() {
    std::vector<Operation *> work;
    for (Operation &op : func.getBody().front().without_terminator()) {
      if (!isBackward(&op))
        continue;
      for (Operation *user : op.getUsers())
        if (!isa<func::ReturnOp>(user) && stageOf(user) != stageOf(&op))
          work.push_back(&op);
    }
    while (!work.empty()) {
      Operation *op = work.back();
      work.pop_back();
      if (!early.insert(op).second)
        continue;
      for (Value operand : op->getOperands())
        if (Operation *def = operand.getDefiningOp(); def && isBackward(def) && stageOf(def) == stageOf(op))
          work.push_back(def);
    }
  }

  // Records that segment `at` reads `value`.
  void need(Value value, SegmentKey at) {
    Operation *def = value.getDefiningOp();
    if (!def)
      return; // available in every segment
    SegmentKey made = cut.place.at(def);
    bool otherStage = made.stage != at.stage;
    if (isRemade(def, otherStage)) {
      for (Value operand : def->getOperands())
        need(operand, at);
      return;
    }
    if (made == at)
      return;
    if (otherStage && made.order == Forward && at.order == Forward && at.stage < made.stage)
      throw userError(fmt::format("stages: stage {} needs a value of stage {} in its forward pass; stages must follow "
                                  "the order in which the model runs",
                                  at.stage, made.stage));
    if (!otherStage && at.order < made.order)
      throw Error(Status::Internal,
                  fmt::format("{} is made in a later segment than one that needs it", stashName(value, 0)));
    auto [entry, added] = needs.try_emplace(value);
    entry->second.insert({at.stage, at.order});
    if (!added)
      return;
    order.push_back(value);
    if (isRemade(def, false)) // its own segment rematerialises it for sending
      for (Value operand : def->getOperands())
        need(operand, made);
  }

  void finish() {
    int64_t stash = 0;
    for (Value value : order) {
      SegmentKey made = cut.place.at(value.getDefiningOp());
      std::map<int64_t, std::vector<int>> byStage;
      for (auto [stage, segment] : needs[value])
        byStage[stage].push_back(segment);
      for (auto &[stage, segments] : byStage) {
        bool kept = stage == made.stage || segments.size() > 1;
        if (stage != made.stage) {
          cut.crossingsOf[value.getAsOpaquePointer()].push_back(cut.crossings.size());
          cut.crossings.push_back({value, made.stage, stage, tag++, segments.front()});
        }
        if (kept)
          cut.stashes[{value.getAsOpaquePointer(), stage}] = stashName(value, stash++);
      }
    }
  }

  static std::string stashName(Value value, int64_t number) {
    auto path = value.getDefiningOp()->getAttrOfType<StringAttr>(ir::attr::path);
    return fmt::format("{}{}#{}", path ? path.str() + "." : "", value.getDefiningOp()->getName().stripDialect().str(),
                       number);
  }
};

} // namespace

Segmentation cutSegments(func::FuncOp func, int64_t &firstTag) { return Cutter(func, firstTag).run(); }

} // namespace cleave::partitioner
