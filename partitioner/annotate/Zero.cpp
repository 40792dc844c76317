// Computes stored shardings; inserts gathers before the first use and scatters right after the last term of a gradient.
#include "partitioner/annotate/Zero.h"

#include "ir/dist/Dist.h"
#include "ir/graph/Graph.h"
#include "partitioner/annotate/Reshard.h"
#include "partitioner/sharding/DataSplit.h"

#include <set>

using namespace mlir;

namespace cleave::partitioner {

namespace {

void setSharding(BlockArgument argument, const Sharding &sharding) {
  cast<func::FuncOp>(argument.getOwner()->getParentOp())
      .setArgAttr(argument.getArgNumber(), dist::attr::sharding, attributeOf(argument.getContext(), sharding));
}

class Gatherer {
public:
  Gatherer(const Decisions &strategy) : eachSegment(strategy.zero == 3) {}

  void gather(BlockArgument parameter, const Sharding &stored) {
    const Sharding whole = shardingOf(parameter);
    setSharding(parameter, stored);
    SmallVector<OpOperand *> uses;
    SmallVector<Operation *> casts;
    for (OpOperand &use : parameter.getUses())
      if (auto cast = dyn_cast<ir::CastOp>(use.getOwner()); cast && ir::narrows(cast))
        casts.push_back(use.getOwner());
      else
        uses.push_back(&use);
    for (Operation *cast : casts) {
      cast->setAttr(dist::attr::shardings, ArrayAttr::get(cast->getContext(), attributeOf(cast->getContext(), stored)));
      SmallVector<OpOperand *> ofCast;
      for (OpOperand &use : cast->getResult(0).getUses())
        ofCast.push_back(&use);
      OpBuilder builder(cast->getContext());
      builder.setInsertionPointAfter(cast);
      replace(builder, cast->getResult(0), whole, ofCast);
    }
    replace(OpBuilder::atBlockBegin(parameter.getOwner()), parameter, whole, uses);
  }

private:
  const bool eachSegment;

  void replace(OpBuilder builder, Value value, const Sharding &whole, ArrayRef<OpOperand *> uses) const {
    if (uses.empty())
      return;
    dist::ReshardOp op = reshardAt(builder, value, whole, uses.front()->getOwner());
    op->setAttr(dist::attr::gathered,
                builder.getStringAttr(eachSegment ? dist::gatheredForSegment : dist::gatheredForIteration));
    ir::setRole(op, ir::role::parameters);
    for (OpOperand *use : uses)
      use->set(op.getResult());
  }
};

} // namespace

NamedShardings storedShardings(ModuleOp step, const Decisions &strategy, const NamedShardings &whole) {
  if (strategy.zero == 0)
    return {};
  auto train = step.lookupSymbol<func::FuncOp>("train");
  std::set<std::string> trained;
  for (unsigned i = 0; i < train.getNumResults(); ++i)
    if (ir::resultKind(train, i) == ir::SlotKind::Gradient)
      trained.insert(ir::resultText(train, i, ir::attr::name).str());
  NamedShardings stored;
  for (BlockArgument argument : train.getArguments()) {
    const std::string name = ir::argumentText(argument, ir::attr::name).str();
    if (ir::argumentKind(argument) != ir::SlotKind::Parameter || (strategy.zero < 3 && !trained.count(name)))
      continue;
    if (std::optional<Sharding> split = splitOverData(whole.at(name), ir::shapeOf(argument).vec(), strategy.mesh))
      stored[name] = *split;
  }
  return stored;
}

static void gatherParameters(func::FuncOp func, const Decisions &strategy, const NamedShardings &stored) {
  Gatherer gatherer(strategy);
  for (BlockArgument argument : func.getArguments())
    if (ir::argumentKind(argument) == ir::SlotKind::Parameter)
      if (auto found = stored.find(ir::argumentText(argument, ir::attr::name).str()); found != stored.end())
        gatherer.gather(argument, found->second);
}

static void scatterGradients(func::FuncOp train, const NamedShardings &stored) {
  OpBuilder builder(train.getContext());
  for (OpOperand &result : train.getBody().front().getTerminator()->getOpOperands()) {
    const unsigned i = result.getOperandNumber();
    const auto found = stored.find(ir::resultText(train, i, ir::attr::name).str());
    Operation *maker = result.get().getDefiningOp();
    if (ir::resultKind(train, i) != ir::SlotKind::Gradient || found == stored.end() || !maker)
      continue;
    Sharding to = found->second;
    to.partialAxes = shardingOf(result.get()).partialAxes;
    to.partialKind = shardingOf(result.get()).partialKind;
    std::erase_if(to.partialAxes, [](const std::string &axis) { return roleOf(axis) == AxisRole::Data; });
    builder.setInsertionPointAfter(maker); // so that the whole gradient is not kept any longer
    dist::ReshardOp op = reshardAt(builder, result.get(), to, maker);
    ir::setRole(op, ir::role::gradients);
    result.set(op.getResult());
  }
}

void useStored(ModuleOp step, const Decisions &strategy, const NamedShardings &stored) {
  for (const char *name : {"train", "eval"})
    if (auto func = step.lookupSymbol<func::FuncOp>(name))
      gatherParameters(func, strategy, stored);
  if (strategy.zero >= 2)
    scatterGradients(step.lookupSymbol<func::FuncOp>("train"), stored);
}

} // namespace cleave::partitioner
