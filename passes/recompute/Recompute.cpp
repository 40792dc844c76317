// Copies forward ops in front of the backward ops that read their results.
#include "passes/recompute/Recompute.h"

#include "ir/Phase.h"
#include "ir/graph/Graph.h"
#include "partitioner/sharding/Pinned.h"
#include "partitioner/stages/Layers.h"
#include "passes/rewrite/ThrowingPass.h"
#include "runtime/base/Error.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>

using namespace mlir;

namespace cleave::passes {

#define GEN_PASS_DEF_RECOMPUTEPASS
#include "passes/Passes.h.inc"

namespace {

using partitioner::Decisions;
using partitioner::Recomputation;

std::string pathOf(Operation *op) {
  auto path = op->getAttrOfType<StringAttr>(ir::attr::path);
  return path ? path.str() : "";
}

bool readsParameter(Operation *op) {
  return llvm::any_of(op->getOperands(), [](Value operand) {
    while (Operation *def = operand.getDefiningOp()) { // through casts and views
      if (!isa<ir::CastOp, ir::TransposeOp, ir::ReshapeOp, ir::SliceOp>(def))
        return false;
      operand = def->getOperand(0);
    }
    return ir::argumentKind(cast<BlockArgument>(operand)) == ir::SlotKind::Parameter;
  });
}

/// Ops that selective recomputation does not repeat: they cost much (products with parameters, convolutions, fused
/// attention), or their results are small (reductions). The products of attention have no parameter: their results, the
/// scores, are large, and cheap to recompute (Korthikanti et al. 2022).
bool isKeptBySelective(Operation *op, bool keptScores) {
  if (isa<ir::MatmulOp>(op))
    return readsParameter(op);
  if (isa<ir::AttentionOp>(op))
    return !keptScores;
  return isa<ir::Conv2dOp, ir::ReduceOp, ir::MaxPool2dOp, ir::EmbeddingOp>(op);
}

class Recomputer {
public:
  Recomputer(func::FuncOp train, const Decisions &strategy, bool keptScores) : train(train), keptScores(keptScores) {
    findLayers();
    readRules(strategy);
  }

  void run() {
    std::vector<Operation *> backward;
    for (Operation &op : train.getBody().front().without_terminator())
      if (isBackward(&op))
        backward.push_back(&op);
    for (Operation *op : backward)
      for (OpOperand &operand : op->getOpOperands())
        if (readsCopy(op, operand.get()))
          operand.set(copyOf(operand.get(), op));
  }

private:
  struct LayerKind {
    std::string path; // "" for ops outside any layer
    Recomputation kind = Recomputation::None;
  };

  func::FuncOp train;
  const bool keptScores;
  std::vector<LayerKind> layers{{}};
  DenseMap<Operation *, size_t> layerOf; // index in `layers`
  DenseMap<Operation *, Operation *> copies;

  void findLayers() {
    const partitioner::LayerNames names = partitioner::layerNames(train);
    std::map<std::string, size_t> byPath{{"", 0}};
    for (Operation &op : train.getBody().front().without_terminator()) {
      const std::string path = names.of(pathOf(&op));
      const auto [found, fresh] = byPath.try_emplace(path, layers.size());
      if (fresh)
        layers.push_back({path});
      layerOf[&op] = found->second;
    }
  }

  /// Sets the kind of each layer; the last rule that matches wins. The pattern `everyLayer` matches all members of
  /// lists, or all layers if there is no list.
  void readRules(const Decisions &strategy) {
    const bool repeated = llvm::any_of(layers, [](auto &layer) { return partitioner::isListMember(layer.path); });
    for (const partitioner::RecomputeRule &rule : strategy.recompute) {
      const bool every = rule.pattern == partitioner::RecomputeRule::everyLayer;
      bool matched = every;
      for (LayerKind &layer : llvm::drop_begin(layers))
        if (every ? !repeated || partitioner::isListMember(layer.path)
                  : partitioner::matches(rule.pattern, layer.path)) {
          matched = true;
          layer.kind = rule.kind;
        }
      if (!matched)
        throw userError(fmt::format("{}recompute: no layer of the model matches \"{}\"; it has {}",
                                    partitioner::placed(rule.where), rule.pattern, listOfLayers()));
    }
  }

  std::string listOfLayers() const {
    std::vector<std::string> paths;
    for (const LayerKind &layer : llvm::drop_begin(layers))
      paths.push_back(layer.path);
    if (paths.size() > 12)
      paths.resize(12), paths.push_back("...");
    return fmt::format("{}", fmt::join(paths, ", "));
  }

  /// Whether the backward pass recomputes the value: the rule of its layer demands it, and nothing outside the layer or
  /// in another stage reads the value (a stage would wait for the backward pass of an earlier one).
  bool isRecomputed(Value value) const {
    Operation *op = value.getDefiningOp();
    if (!op || isBackward(op) || isa<ir::ConstantOp, ir::IotaOp>(op))
      return false;
    const size_t layer = layerOf.at(op);
    const Recomputation kind = layers[layer].kind;
    if (kind == Recomputation::None || (kind == Recomputation::Selective && isKeptBySelective(op, keptScores)))
      return false;
    return llvm::none_of(value.getUsers(), [&](Operation *user) {
      return isa<func::ReturnOp>(user) || user->getAttr(ir::attr::stage) != op->getAttr(ir::attr::stage) ||
             (!isBackward(user) && layerOf.at(user) != layer);
    });
  }

  /// Whether `user`, a backward op or one that is copied, reads a copy of the value. The gradient of a maximum or
  /// minimum compares its result with its operand, and divides by the number of elements that are equal. So where the
  /// operand is a copy, the result is one, too: a copy that is split otherwise may differ in its last bits.
  bool readsCopy(Operation *user, Value value) const {
    if (isRecomputed(value))
      return true;
    auto reduce = value.getDefiningOp<ir::ReduceOp>();
    return reduce && !isBackward(reduce) && reduce.getKind() != ir::ReduceKind::Sum &&
           layerOf.at(user) == layerOf.at(reduce) && isRecomputed(reduce.getInput());
  }

  /// The copy of a value, made in front of `before` if there is none yet. Backward ops are visited in order, so that a
  /// copy precedes all ops that read it.
  Value copyOf(Value value, Operation *before) {
    Operation *op = value.getDefiningOp();
    const unsigned number = cast<OpResult>(value).getResultNumber();
    if (Operation *known = copies.lookup(op))
      return known->getResult(number);
    SmallVector<Value> operands;
    for (Value operand : op->getOperands())
      operands.push_back(readsCopy(op, operand) ? copyOf(operand, before) : operand);
    OpBuilder builder(before);
    Operation *copy = builder.clone(*op);
    copy->setOperands(operands);
    copy->setAttr(ir::attr::phase, builder.getStringAttr("backward"));
    return (copies[op] = copy)->getResult(number);
  }
};

struct RecomputePass : ThrowingPass<impl::RecomputePassBase<RecomputePass>> {
  using ThrowingPass::ThrowingPass;

  void work() override {
    ir::requirePhase(getOperation(), "recompute", ir::Phase::Step);
    const std::optional<Recomputation> known = partitioner::recomputationNamed(kind);
    if (!known)
      throw userError(fmt::format("recompute: kind must be none, selective or full, found \"{}\"", kind.getValue()));
    Decisions strategy;
    strategy.recompute.push_back({partitioner::RecomputeRule::everyLayer, *known});
    recompute(getOperation().lookupSymbol<func::FuncOp>("train"), strategy, keptScores);
  }
};

} // namespace

bool isBackward(Operation *op) { return op->hasAttr(ir::attr::phase); }

void recompute(func::FuncOp train, const Decisions &strategy, bool keptScores) {
  if (!strategy.recompute.empty())
    Recomputer(train, strategy, keptScores).run();
  recomputeNormResults(train);
}

} // namespace cleave::passes
