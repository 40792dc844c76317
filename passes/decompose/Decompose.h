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

/// What becomes of attention and its gradient: matrix products and a softmax, where there is no such kernel.
/// `KeepHalf`: what NVIDIA's libraries have one for stays, half types with heads of at most 128 elements, a multiple
/// of 8.
enum class AttentionOps { Decompose, KeepHalf, Keep };

struct DecomposeOptions {
  AttentionOps attention = AttentionOps::Decompose;
};

/// Rewrites every function of the module.
void decompose(mlir::ModuleOp module, const DecomposeOptions &options);

/// The same as `--decompose` or `--decompose=attention=keep` (or keep-half).
std::unique_ptr<mlir::Pass> createDecomposePass(const DecomposeOptions &options = {});

} // namespace cleave::passes
