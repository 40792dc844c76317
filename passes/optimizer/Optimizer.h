// Builds @update, the optimizer as graph ops, for the trainable parameters of @train.
//
// The module attribute `cleave.optimizer` is a dictionary: name = "sgd", "adam" or "adamw"; lr (used by the host, who
// writes the scalar), momentum, nesterov, weight_decay, beta1, beta2, eps, clip_norm, ema. Formulas and defaults are
// PyTorch's (torch.optim.SGD with dampening 0, Adam, AdamW; torch.nn.utils.clip_grad_norm_ over all parameters at
// once; torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn(ema), updated after each step).
//
// Arguments of @update: for every trainable parameter the parameters (kind "parameter"), then the gradients
// ("gradient"), then the states ("state", named "<parameter>.momentum", "<parameter>.exp_avg",
// "<parameter>.exp_avg_sq", cleave.init constant 0; "<parameter>.ema", which begins as the parameter), then scalars "lr" and "step" (1 for the first step; kind
// "scalar"), then "weight" (kind "metric", the global number of rows or positions counted; not with @weights), each
// tensor<f32>. Results: parameters, then states.
//
// With a loss scale (passes/precision/LossScale.h), its three states follow the others. A step with gradients that are
// not all finite leaves parameters and their states unchanged.
//
// Gradients are relative to the static count (see Differentiate.h) and are first multiplied by static count / weight;
// those of a loss with several terms (@weights) are complete.
//
// Ops of one parameter have `cleave.parameter` (its name) and cleave.path (the name without its last component). Ops on
// shared scalars have the path "optimizer" and no `cleave.parameter`. Constants, and scalars broadcast to a shape, are
// created once per shape and have neither.
#pragma once
#include <memory>

namespace mlir {
class ModuleOp;
class Pass;
} // namespace mlir

namespace cleave::passes {

/// Adds @update. Throws userError for an unknown optimizer or option, or a value out of range.
void buildOptimizer(mlir::ModuleOp module);

// The pass and its options: passes/Passes.td.
#define GEN_PASS_DECL_BUILDOPTIMIZERPASS
#include "passes/Passes.h.inc"

} // namespace cleave::passes
