// Rewrites composite ops (softmax, norms, losses, optionally attention) and their gradients to primitives on global
// shapes.
//
// Runs after differentiation and before a strategy is applied, so that a reduction over a split dimension is an
// ordinary partial sum. Primitives keep the composite's location and cleave.* attributes. Statistics are f32; the
// variance takes two passes (the mean, then the mean of squared differences).
#pragma once
#include <memory>

namespace mlir {
class ModuleOp;
class Pass;
} // namespace mlir

namespace cleave::passes {

/// What to do with attention and its gradient. `Decompose`: to matrix products and softmax. `KeepHalf`: keeps those
/// that NVIDIA's libraries support, namely half types with a head size of at most 128 that is a multiple of 8, without a bias and
/// dropout. `KeepWide`: keeps those that the CPU device computes, in f32 and bf16.
enum class AttentionOps { Decompose, KeepHalf, KeepWide, Keep };

/// Rewrites every function of the module.
void decompose(mlir::ModuleOp module, AttentionOps attention = AttentionOps::Decompose);

// The pass and its options: passes/Passes.td.
#define GEN_PASS_DECL_DECOMPOSEPASS
#include "passes/Passes.h.inc"

} // namespace cleave::passes
