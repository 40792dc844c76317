// Costs of kernels that functions, compilations and threads share: layers repeat, also in other plans of a model.
#pragma once
#include "passes/codegen/nest/KernelGraph.h"
#include "passes/codegen/nest/Signature.h"

#include <map>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <unordered_map>

namespace cleave::passes {

/// May be used by several threads at once. What it returns does not depend on what was asked before.
class KernelCostTable {
public:
  /// A number for a node without its operands; equal nodes have equal numbers, in every MLIR context.
  uintptr_t numberOf(const kernel::Node &node);

  /// The cost of the kernel with this signature, whose ops and types are such numbers; nothing if it is not known yet.
  std::optional<double> find(const kernel::Signature &signature) const;
  void add(kernel::Signature signature, double cost);

private:
  mutable std::shared_mutex mutex;
  std::map<std::vector<uint64_t>, uintptr_t> numbers;
  std::unordered_map<kernel::Signature, double, kernel::SignatureHash> costs;
};

} // namespace cleave::passes
