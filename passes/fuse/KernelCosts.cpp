// Caches the costs of kernels from the planner and the cost model.
#include "passes/fuse/KernelCosts.h"
#include "passes/codegen/nest/FromFusion.h"

#include <limits>

namespace cleave::passes {

double KernelCosts::of(const Groups &groups, const std::vector<mlir::Operation *> &ops) {
  const auto [inputs, outputs] = groups.border(ops);
  if (outputs.empty())
    return 0;
  llvm::SmallVector<bool> scalar;
  for (mlir::Value input : inputs)
    scalar.push_back(kernel::isShardOffset(input));
  auto [found, fresh] = known.try_emplace(
      kernel::signatureOf(inputs, ops, outputs, scalar, [&](mlir::Operation *op) { return kindOf(op); }), 0);
  if (fresh) {
    auto nest = kernel::loopNestOf(kernel::graphOf(inputs, ops, outputs, scalar), nullptr, width);
    found->second = nest ? kernel::cost(*nest) : std::numeric_limits<double>::infinity();
  }
  return found->second;
}

uintptr_t KernelCosts::kindOf(mlir::Operation *op) {
  auto [found, fresh] = kinds.try_emplace(op, 0);
  if (fresh)
    found->second = kindNumbers.of(op);
  return found->second;
}

} // namespace cleave::passes
