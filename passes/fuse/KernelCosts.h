// Costs of kernels by what they compute, each asked of the planner once. Private to fuse.
#pragma once
#include "passes/codegen/Signature.h"
#include "passes/fuse/Groups.h"

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
  uintptr_t kindOf(mlir::Operation *op);

  int width;
  kernel::OpKinds kindNumbers;
  llvm::DenseMap<mlir::Operation *, uintptr_t> kinds;
  std::unordered_map<kernel::Signature, double, kernel::SignatureHash> known;
};

} // namespace cleave::passes
