// Costs of kernels by what they compute, each asked of the planner once: layers repeat. Private to fuse.
#pragma once
#include "passes/fuse/Groups.h"

#include <map>
#include <tuple>
#include <vector>

namespace cleave::passes {

class KernelCosts {
public:
  /// `width`: lanes of a vector that costs are compared for.
  explicit KernelCosts(int width) : width(width) {}

  /// Microseconds of one kernel of these ops; infinite where one kernel cannot compute them, 0 where nothing is read.
  double of(const Groups &groups, const std::vector<mlir::Operation *> &ops);
  /// To be called before an op is erased.
  void forget(mlir::Operation *op) { kinds.erase(op); }

private:
  using Problem = std::vector<uintptr_t>;
  uintptr_t kindOf(mlir::Operation *op);
  Problem problemOf(const std::vector<mlir::Value> &inputs, const std::vector<mlir::Operation *> &ops,
                    const std::vector<mlir::Value> &outputs);
  double ask(const std::vector<mlir::Value> &inputs, const std::vector<mlir::Operation *> &ops,
             const std::vector<mlir::Value> &outputs) const;

  int width;
  std::map<std::tuple<const void *, const void *, const void *>, uintptr_t> kindNumbers; // name, type, properties
  llvm::DenseMap<mlir::Operation *, uintptr_t> kinds;
  std::map<Problem, double> known;
};

} // namespace cleave::passes
