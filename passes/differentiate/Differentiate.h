// Reverse-mode differentiation of @forward into @train.
//
// @train has @forward's arguments, ops and results, then the gradient ops in reverse order of the forward ops (so that
// program order is a good schedule), then for every trainable parameter, in argument order, a result of kind "gradient"
// with cleave.name = the parameter's name and cleave.trainable. The gradient is 0 if ops between the parameter and the
// loss have been simplified away. What the loss does not depend on as the user wrote it is no longer trainable
// (leaveUntrained, before any simplification): as in PyTorch, whose optimizers skip it, it is not updated, decayed or
// moved by momentum.
//
// Gradient ops have the location, cleave.path and cleave.stage of the forward op and cleave.phase = "backward". A
// cleave.add of several contributions has those of the op that produced the value (for parameters: of the
// contribution).
//
// The gradient is that of loss / static count, where static count = static_weight * microbatches. static_weight, the
// number of rows or positions in a microbatch if none is masked, is the i64 attribute `cleave.static_weight` of
// @forward. @train keeps that attribute and gets `cleave.static_count`.
//
// If the module has `cleave.loss_scale` (passes/precision/LossScale.h), @train gets an argument of kind "state" named
// "loss_scale", and all gradients are multiplied by it.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace mlir {
class ModuleOp;
class Pass;
namespace func {
class FuncOp;
}
} // namespace mlir

namespace cleave::passes {

/// Replaces @forward by @train, for a batch of `microbatches` parts. Throws userError if an op between a trainable
/// parameter and the loss has no gradient, naming the op and the user's source line, and if @forward has no loss or no
/// static weight.
void differentiate(mlir::ModuleOp module, int64_t microbatches);

/// The trainable parameters of @forward that no gradient of the loss reaches, in argument order.
std::vector<std::string> parametersWithoutGradient(mlir::func::FuncOp forward);

/// Makes these parameters untrainable in all functions.
void leaveUntrained(mlir::ModuleOp module);

// The pass and its options: passes/Passes.td.
#define GEN_PASS_DECL_DIFFERENTIATEPASS
#define GEN_PASS_DECL_LEAVEUNTRAINEDPASS
#include "passes/Passes.h.inc"

} // namespace cleave::passes
