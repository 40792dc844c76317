// Costs of kernels, computed once per signature. Private to fuse.
#pragma once
#include "passes/codegen/nest/Signature.h"
#include "passes/fuse/Groups.h"

namespace cleave::passes {

class KernelCosts {
public:
  /// `width`: vector lanes assumed by the cost model.
  explicit KernelCosts(int width) : width(width) {}

  /// Microseconds of one kernel of these ops; infinite if they cannot be one kernel, 0 if no result is used.
  double of(const Groups &groups, const std::vector<mlir::Operation *> &ops);
  /// Call before an op is erased.
  void forget(mlir::Operation *op) { kinds.erase(op); }

private:
  uintptr_t kindOf(mlir::Operation *op);

  int width;
  kernel::OpKinds kindNumbers;
  llvm::DenseMap<mlir::Operation *, uintptr_t> kinds;
  std::unordered_map<kernel::Signature, double, kernel::SignatureHash> known;
};

} // namespace cleave::passes
