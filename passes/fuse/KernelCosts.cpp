// What a kernel computes as numbers, and what the planner and the cost model said of it.
#include "passes/fuse/KernelCosts.h"
#include "passes/codegen/FromFusion.h"

#include <limits>

namespace cleave::passes {

double KernelCosts::of(const Groups &groups, const std::vector<mlir::Operation *> &ops) {
  const std::vector<mlir::Value> inputs = groups.inputs(ops), outputs = groups.outputs(ops);
  if (outputs.empty())
    return 0;
  auto [found, fresh] = known.try_emplace(problemOf(inputs, ops, outputs), 0);
  if (fresh)
    found->second = ask(inputs, ops, outputs);
  return found->second;
}

double KernelCosts::ask(const std::vector<mlir::Value> &inputs, const std::vector<mlir::Operation *> &ops,
                        const std::vector<mlir::Value> &outputs) const {
  llvm::SmallVector<bool> scalar;
  for (mlir::Value input : inputs)
    scalar.push_back(kernel::isShardOffset(input));
  auto program = kernel::schedule(kernel::graphOf(inputs, ops, outputs, scalar), nullptr, width);
  return program ? kernel::cost(*program) : std::numeric_limits<double>::infinity();
}

/// Equal for ops of one name, type and properties.
uintptr_t KernelCosts::kindOf(mlir::Operation *op) {
  auto [found, fresh] = kinds.try_emplace(op, 0);
  if (fresh)
    found->second = kindNumbers
                        .try_emplace({op->getName().getAsOpaquePointer(),
                                      op->getResult(0).getType().getAsOpaquePointer(),
                                      op->getPropertiesAsAttribute().getAsOpaquePointer()},
                                     kindNumbers.size())
                        .first->second;
  return found->second;
}

/// Inputs by type, ops by kind and operands, outputs: all that a kernel graph is made of. Counts keep the parts apart.
KernelCosts::Problem KernelCosts::problemOf(const std::vector<mlir::Value> &inputs,
                                            const std::vector<mlir::Operation *> &ops,
                                            const std::vector<mlir::Value> &outputs) {
  Problem problem{inputs.size(), ops.size()};
  llvm::DenseMap<mlir::Value, uintptr_t> numbers;
  for (mlir::Value input : inputs) {
    numbers[input] = numbers.size();
    problem.push_back(reinterpret_cast<uintptr_t>(input.getType().getAsOpaquePointer()));
    problem.push_back(kernel::isShardOffset(input));
  }
  for (mlir::Operation *op : ops) {
    problem.push_back(kindOf(op));
    for (mlir::Value operand : op->getOperands())
      problem.push_back(numbers.lookup(operand));
    problem.push_back(UINTPTR_MAX); // a concatenation has any number of operands
    numbers[op->getResult(0)] = numbers.size();
  }
  for (mlir::Value output : outputs)
    problem.push_back(numbers.lookup(output));
  return problem;
}

} // namespace cleave::passes
