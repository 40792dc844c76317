// Follows the loss to what it depends on.
#include "tests/random/Reach.h"
#include "ir/graph/Graph.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseSet.h"

#include <fmt/format.h>

namespace cleave::random_models {

static mlir::func::FuncOp forwardOf(const GraphModule &traced) {
  return llvm::cast<mlir::func::FuncOp>(traced.function("forward"));
}

static llvm::DenseSet<mlir::Value> neededByLoss(mlir::func::FuncOp forward) {
  llvm::DenseSet<mlir::Value> needed;
  for (mlir::OpOperand &result : forward.front().getTerminator()->getOpOperands())
    if (ir::resultKind(forward, result.getOperandNumber()) == ir::SlotKind::Loss)
      needed.insert(result.get());
  for (mlir::Operation &op : llvm::reverse(forward.front()))
    if (llvm::any_of(op.getResults(), [&](mlir::Value result) { return needed.contains(result); }))
      needed.insert_range(op.getOperands());
  return needed;
}

bool stopsGradients(const GraphModule &traced) {
  for (mlir::Value value : neededByLoss(forwardOf(traced)))
    if (llvm::isa_and_nonnull<ir::DetachOp>(value.getDefiningOp()))
      return true;
  return false;
}

std::string trainedWithoutUse(const GraphModule &traced, const ir::Slots &beginning, const Steps &steps) {
  mlir::func::FuncOp forward = forwardOf(traced);
  const llvm::DenseSet<mlir::Value> needed = neededByLoss(forward);
  for (mlir::BlockArgument argument : forward.getArguments()) {
    const bool trains = forward.getArgAttr(argument.getArgNumber(), ir::attr::trainable) != nullptr;
    if (ir::argumentKind(argument) != ir::SlotKind::Parameter || (trains && needed.contains(argument)))
      continue;
    const ir::SlotKey key{ir::SlotKind::Parameter, ir::argumentText(argument, ir::attr::name).str()};
    const auto before = beginning.find(key);
    for (const ir::Slots &after : steps) {
      if (before != beginning.end() && after.at(key).values != before->second.values)
        return fmt::format("parameter {} has changed", key.name);
      for (const auto &[state, tensor] : after)
        if (state.kind == ir::SlotKind::State && state.name.starts_with(key.name + "."))
          return fmt::format("parameter {} has the state {}", key.name, state.name);
    }
  }
  return {};
}

} // namespace cleave::random_models
