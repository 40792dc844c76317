// Annotates the functions of a step.
#include "partitioner/annotate/AnnotateStep.h"

#include "ir/dist/Dist.h"
#include "ir/graph/Graph.h"
#include "partitioner/annotate/Reshard.h"
#include "partitioner/sharding/Pinned.h"
#include "runtime/base/Error.h"

#include <fmt/format.h>

using namespace mlir;

namespace cleave::partitioner {

void checkRules(func::FuncOp train, const Decisions &strategy) {
  for (const ShardRule &rule : strategy.shard) {
    bool matched = false;
    for (const BlockArgument argument : train.getArguments()) {
      const ir::SlotKind kind = ir::argumentKind(argument);
      if (kind == ir::SlotKind::Parameter || kind == ir::SlotKind::Buffer)
        matched |= matches(rule.pattern, ir::argumentText(argument, ir::attr::name).str());
    }
    if (!matched)
      throw userError(
          fmt::format("{}shard: no parameter or buffer of the model matches \"{}\"", placed(rule.where), rule.pattern));
  }
}

// Rejects an axis tp that splits nothing, because all of its ranks would do the same work.
static void checkTensorAxis(func::FuncOp train, const Decisions &strategy) {
  if (strategy.mesh.size(AxisRole::Tensor) == 1)
    return;
  bool used = llvm::any_of(train.getArguments(), [](Value v) { return shardingOf(v).splitsOver(AxisRole::Tensor); });
  train.walk([&](Operation *op) {
    if (op != train.getOperation())
      used |= llvm::any_of(op->getResults(), [](Value v) { return shardingOf(v).usesAxis(AxisRole::Tensor); });
  });
  if (!used)
    throw userError(fmt::format("mesh: tp = {} splits no tensor of the model, and its ranks would only repeat each "
                                "other's work; a rule in [shard] or withSharding can split one",
                                strategy.mesh.size(AxisRole::Tensor)));
}

NamedShardings annotateTrain(ModuleOp step, const Decisions &strategy) {
  auto train = step.lookupSymbol<func::FuncOp>("train");
  checkRules(train, strategy);
  NamedShardings named;
  assignShardings(train, strategy, named);
  checkTensorAxis(train, strategy);
  return named;
}

void annotateOthers(ModuleOp step, const Decisions &strategy, NamedShardings &named, const NamedShardings &stored) {
  auto train = step.lookupSymbol<func::FuncOp>("train"), update = step.lookupSymbol<func::FuncOp>("update"),
       eval = step.lookupSymbol<func::FuncOp>("eval"), weights = step.lookupSymbol<func::FuncOp>("weights");
  if (update) {
    NamedShardings updated = stored;
    updated.insert(named.begin(), named.end());
    assignShardings(update, strategy, updated);
  }
  if (weights)
    assignShardings(weights, strategy, named);
  if (eval) {
    assignShardings(eval, strategy, named);
    alignMetrics({train, weights, eval});
  }
}

} // namespace cleave::partitioner
