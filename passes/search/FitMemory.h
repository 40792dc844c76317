// Chooses the recomputation of a plan whose request leaves it open. No MLIR in this header.
#pragma once
#include "ir/GraphModule.h"
#include "passes/CompileOptions.h"

#include <string>

namespace cleave::passes {

struct FittedPlan {
  std::vector<uint8_t> bytes;
  std::string problem; ///< why the plan does not fit the memory of the cluster's devices; empty: it does
  std::string change;  ///< a line about what was chosen so that it fits; empty: nothing
};

/// searchAndCompile() for a plan that must fit the memory of options.cluster. If the strategy says nothing of
/// recomputation and the plan does not fit, takes the least recomputation of every layer that does: selective, or full.
/// If none fits, returns the plan as requested, with its problem. Throws as searchAndCompile() does.
FittedPlan compileToFit(GraphModule model, const CompileOptions &options);

} // namespace cleave::passes
