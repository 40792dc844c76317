// Rewrites composite ops (softmax, norms, losses, optionally attention) and their gradients to primitives on global
// shapes.
//
// It runs after differentiation and before a strategy is applied, so that a reduction over a split dimension is a
// partial sum like any other. Primitives keep the composite's location and cleave.* attributes. Statistics are in f32;
// variance is computed in two passes (mean first, then the mean of squared differences).
#pragma once
#include <memory>

namespace mlir {
class ModuleOp;
class Pass;
} // namespace mlir

namespace cleave::passes {

struct DecomposeOptions {
  /// Also attention and its gradient, as matrix products and a softmax (the CPU has no such kernel).
  bool attention = true;
};

/// Rewrites every function of the module.
void decompose(mlir::ModuleOp module, const DecomposeOptions &options);

/// The same as `--decompose` or `--decompose=attention=keep`.
std::unique_ptr<mlir::Pass> createDecomposePass(const DecomposeOptions &options = {});

} // namespace cleave::passes
