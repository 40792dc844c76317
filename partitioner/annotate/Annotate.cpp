// Reads a function as a problem, solves it and writes the solution.
#include "partitioner/annotate/Annotate.h"

#include "partitioner/annotate/ReadProblem.h"
#include "partitioner/annotate/WriteSolution.h"
#include "partitioner/sharding/Assign.h"
#include "partitioner/sharding/Decided.h"
#include "runtime/base/Error.h"

#include "mlir/Interfaces/SideEffectInterfaces.h"

#include <fmt/format.h>

using namespace mlir;

namespace cleave::partitioner {

dist::ShardingAttr shardingAttrOf(Value value) {
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    auto func = cast<func::FuncOp>(argument.getOwner()->getParentOp());
    return func.getArgAttrOfType<dist::ShardingAttr>(argument.getArgNumber(), dist::attr::sharding);
  }
  auto all = value.getDefiningOp()->getAttrOfType<ArrayAttr>(dist::attr::shardings);
  return all ? cast<dist::ShardingAttr>(all[cast<OpResult>(value).getResultNumber()]) : nullptr;
}

const Sharding &shardingOf(Value value) {
  dist::ShardingAttr attribute = shardingAttrOf(value);
  const Sharding *sharding = attribute ? attribute.forType(value.getType()) : nullptr;
  if (!sharding)
    throw Error(Status::Internal, fmt::format("sharding \"{}\" does not fit its tensor of {} dimensions",
                                              attribute ? attribute.getText().str() : "none",
                                              cast<RankedTensorType>(value.getType()).getRank()));
  return *sharding;
}

/// Removes the originals of ops of which only copies are used: they keep operands under other shardings.
static void eraseUnused(func::FuncOp func) {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(func.getBody().front())))
    if (isOpTriviallyDead(&op))
      op.erase();
}

void assignShardings(func::FuncOp func, const Decisions &strategy, NamedShardings &named) {
  const ShardingProblem problem = readProblem(func, strategy, named);
  // Labels count the ops of the forward and the backward pass.
  const bool train = func.getName() == "train";
  const DecidedOps decided = train || func.getName() == "eval" ? decidedOps(problem, strategy, train) : DecidedOps();
  const ShardingSolution solution = assign(problem, decided);
  for (size_t n = 0; n < problem.names.size(); ++n)
    if (solution.named[n])
      named[problem.names[n].name] = solution.table[*solution.named[n]];
  writeSolution(func, solution);
  if (!decided.empty())
    eraseUnused(func);
}

} // namespace cleave::partitioner
