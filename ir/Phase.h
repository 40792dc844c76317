// The phase of a module (docs/architecture.md). A pass run by hand in cleave-opt reports a wrong phase as an error.
#pragma once
#include "mlir/IR/BuiltinOps.h"

#include <cstdint>
#include <string>

namespace cleave::ir {

enum class Phase : uint8_t {
  Traced,         ///< @forward and @eval
  Differentiated, ///< @train: forward and backward
  Step,           ///< @train, @update and @eval on whole tensors
  Annotated,      ///< the step; every value has a sharding
  Local,          ///< a mesh, and one function per stage, class of ranks and segment
  Other
};

Phase phaseOf(mlir::ModuleOp module);

/// Throws a user error that names the pass, the phases and the function, unless `module` is in `phase` and its
/// functions have the form described in GraphBase.td: one block; arguments with a known kind and a name unique within
/// that kind; metrics of type `tensor<f32>`; new values and gradients that match an argument by name and shape.
void requirePhase(mlir::ModuleOp module, const std::string &pass, Phase phase);

} // namespace cleave::ir
