// Where an activation's channels lie: [n, c, h, w] as users write it, or channels last, [n, h, w, c], which is how
// matrix units read convolutions (PyTorch's `memory_format=torch.channels_last`).
#pragma once
#include <memory>

namespace mlir {
class ModuleOp;
class Pass;
} // namespace mlir

namespace cleave::passes {

/// Rewrites @forward and @eval as traced: convolutions, and what follows them as far as it can, work on [n, h, w, c].
/// Inputs, parameters, buffers and results stay as they are; parameters of convolutions are turned to [o, h, w, c]
/// where they are used. Gradients follow by differentiation.
void useChannelsLast(mlir::ModuleOp module);

/// The same as `--channels-last`.
std::unique_ptr<mlir::Pass> createChannelsLastPass();

} // namespace cleave::passes
