#include "partitioner/annotate/Reshard.h"

#include "ir/Phase.h"
#include "ir/graph/Graph.h"
#include "partitioner/annotate/Annotate.h"

#include <map>
#include <optional>
#include <set>

using namespace mlir;

namespace cleave::partitioner {

dist::ShardingAttr attributeOf(MLIRContext *context, const Sharding &sharding) {
  return dist::ShardingAttr::get(context, sharding.str());
}

dist::ReshardOp reshardAt(OpBuilder &builder, Value value, const Sharding &to, Operation *marks) {
  dist::ShardingAttr lies = attributeOf(value.getContext(), to);
  auto op = dist::ReshardOp::create(builder, value.getLoc(), value.getType(), value, shardingAttrOf(value), lies);
  ir::copyOrigin(marks, op);
  if (Attribute stage = marks->getAttr(ir::attr::stage))
    op->setAttr(ir::attr::stage, stage);
  op->setAttr(dist::attr::shardings, builder.getArrayAttr(lies));
  return op;
}

void alignMetrics(ArrayRef<func::FuncOp> functions) {
  std::map<std::string, std::optional<std::set<std::string>>> common; // by metric, the axes over which all its results
                                                                      // are partial
  const auto forEachMetric = [&](auto visit) {
    for (func::FuncOp func : functions)
      for (OpOperand &result :
           func ? func.getBody().front().getTerminator()->getOpOperands() : MutableArrayRef<OpOperand>())
        if (const unsigned i = result.getOperandNumber(); ir::isMetric(ir::resultKind(func, i)))
          visit(ir::metricName(ir::resultKind(func, i), ir::resultText(func, i, ir::attr::name)), result);
  };
  forEachMetric([&](const std::string &kind, OpOperand &result) {
    const std::vector<std::string> &axes = shardingOf(result.get()).partialAxes;
    std::optional<std::set<std::string>> &kept = common[kind];
    if (!kept)
      kept.emplace(axes.begin(), axes.end());
    std::erase_if(*kept, [&](const std::string &axis) { return !llvm::is_contained(axes, axis); });
  });
  forEachMetric([&](const std::string &kind, OpOperand &result) {
    Sharding to = shardingOf(result.get());
    if (std::erase_if(to.partialAxes, [&](const std::string &axis) { return !common[kind]->count(axis); }) == 0)
      return;
    OpBuilder builder(result.getOwner());
    dist::ReshardOp op = reshardAt(builder, result.get(), to, result.get().getDefiningOp());
    ir::setRole(op, ir::role::metrics);
    result.set(op.getResult());
  });
}

} // namespace cleave::partitioner
