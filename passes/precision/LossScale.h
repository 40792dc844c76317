// Loss scaling (Micikevicius et al. 2018): the loss's gradient is multiplied by a scale, so that small gradients do not
// underflow in fp16. The update divides by it and skips a step with gradients that are not finite. The scale is part of
// the training state: checkpoints store it, and every rank updates its own copy identically.
#pragma once
#include "runtime/base/Precision.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinOps.h"

#include <optional>

namespace cleave::passes {

/// The module attribute `cleave.loss_scale`, a dictionary: initial, dynamic, growth_interval. None: the loss is not
/// scaled.
std::optional<LossScale> lossScaleOf(mlir::ModuleOp module);
void setLossScale(mlir::ModuleOp module, const std::optional<LossScale> &scale);

/// Names of the states, each tensor<f32>: the scale, applied steps since its last change, steps skipped so far.
inline constexpr const char *lossScaleState = "loss_scale", *cleanStepsState = "loss_scale.clean_steps",
                            *skippedStepsState = "loss_scale.skipped_steps";

} // namespace cleave::passes
