// The layout of activations: [n, c, h, w] as in the user's model, or channels last, [n, h, w, c], which matrix units
// need for convolutions (PyTorch's `memory_format=torch.channels_last`).
#pragma once
#include <memory>

namespace mlir {
class ModuleOp;
class Pass;
} // namespace mlir

namespace cleave::passes {

/// Rewrites the traced @forward and @eval: convolutions, pools, and ops after them that support it, use [n, h, w, c],
/// around 1-D convolutions [n, t, c]. Inputs, parameters, buffers and results keep their layout; parameters of
/// convolutions are transposed to [o, h, w, c] at their use. Gradients follow by differentiation.
void useChannelsLast(mlir::ModuleOp module);

// The pass and its options: passes/Passes.td.
#define GEN_PASS_DECL_CHANNELSLASTPASS
#include "passes/Passes.h.inc"

} // namespace cleave::passes
