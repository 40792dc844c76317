// Reverse-mode differentiation of @forward into @train.
//
// @train has @forward's arguments, ops and results, then gradient ops in reverse order of the forward ops (so that
// program order is a natural schedule), then for every trainable parameter, in argument order, a result of kind
// "gradient" with cleave.name = the parameter's name and cleave.trainable.
//
// Gradient ops carry location, cleave.path and cleave.stage of the forward op and cleave.phase = "backward". Where
// several contributions meet, the cleave.add carries those of the op that produced the value (for parameters: of the
// contribution).
//
// The gradient is of loss / static count, where static count = static_weight * microbatches; static_weight, how many
// rows or positions a microbatch counts when none is masked, is the i64 attribute `cleave.static_weight` of @forward.
// @train keeps that attribute and gets `cleave.static_count`.
//
// Where the module has `cleave.loss_scale` (passes/precision/LossScale.h), @train gets an argument of kind "state"
// named "loss_scale", by which the gradients are multiplied.
#pragma once
#include <cstdint>
#include <memory>

namespace mlir {
class ModuleOp;
class Pass;
} // namespace mlir

namespace cleave::passes {

struct DifferentiateOptions {
  int64_t microbatches = 1;
};

/// Replaces @forward by @train. Throws userError where an op between a trainable parameter and the loss has no
/// gradient, naming the op and the user's source line, and where @forward has no loss or no static weight.
void differentiate(mlir::ModuleOp module, const DifferentiateOptions &options);

/// The same as `--differentiate=microbatches=M`.
std::unique_ptr<mlir::Pass> createDifferentiatePass(const DifferentiateOptions &options = {});

} // namespace cleave::passes
