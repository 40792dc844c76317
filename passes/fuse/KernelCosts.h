// Costs of kernels, computed once per signature. Private to fuse.
#pragma once
#include "passes/fuse/Groups.h"
#include "passes/fuse/KernelCostTable.h"

namespace cleave::passes {

class KernelCosts {
public:
  /// `width`: vector lanes assumed by the cost model. `shared`: null if no other function shares the costs.
  KernelCosts(int width, KernelCostTable *shared) : width(width), table(shared ? *shared : own) {}

  /// Microseconds of one kernel of these ops; infinite if they cannot be one kernel, 0 if no result is used.
  double of(const Groups &groups, const std::vector<mlir::Operation *> &ops);
  /// Call before an op is erased.
  void forget(mlir::Operation *op) { ops.erase(op); }

private:
  uintptr_t numberOf(mlir::Operation *op);
  uintptr_t numberOf(mlir::Type type);

  int width;
  KernelCostTable own;
  KernelCostTable &table;
  llvm::DenseMap<mlir::Operation *, uintptr_t> ops;
  llvm::DenseMap<mlir::Type, uintptr_t> types;
  llvm::DenseMap<mlir::Attribute, uintptr_t> constants;
};

} // namespace cleave::passes
