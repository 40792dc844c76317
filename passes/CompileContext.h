// What a compilation has in common with others. No MLIR in this header.
#pragma once
#include "runtime/base/Stopped.h"

#include <memory>
#include <optional>

namespace cleave::passes {

class KernelCostTable;

struct CompileContext {
  /// Asked between phases, functions and programs: whether to end with the exception Stopped.
  Stops stops = {};
  std::shared_ptr<KernelCostTable> kernelCosts = nullptr; ///< null: its own (passes/fuse)
  /// Only costs are read from the plan: its IR is not verified, and its memory not packed tightly.
  bool trial = false;
  /// On GPUs, a stream of their own for collectives over axis dp alone; none: as replicasApart (partitioner/search),
  /// and not without a cluster.
  std::optional<bool> replicasApart = {};
};

} // namespace cleave::passes
