// Which phase a module is in, for passes that are run by hand (cleave-opt): a pass that needs another phase says so
// instead of running into what is not there. The phases are those of docs/architecture.md.
#pragma once
#include "mlir/IR/BuiltinOps.h"

#include <cstdint>
#include <string>

namespace cleave::ir {

enum class Phase : uint8_t {
  Traced,         ///< @forward and @eval
  Differentiated, ///< @train: forward and backward
  Step,           ///< @train, @update and @eval on whole tensors
  Annotated,      ///< the step, values with shardings
  Local,          ///< a mesh, and one function per stage, class of ranks and segment
  Other
};

Phase phaseOf(mlir::ModuleOp module);

/// Throws a user error that names pass, phases and the function at fault unless `module` is in `phase` and its
/// functions have the form that GraphBase.td describes: one block; arguments with a kind that is known and a name that
/// none of the same kind has; metrics that are `tensor<f32>`; and new values and gradients of what is an argument.
void requirePhase(mlir::ModuleOp module, const std::string &pass, Phase phase);

} // namespace cleave::ir
