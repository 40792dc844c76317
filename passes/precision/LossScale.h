// Loss scaling (Micikevicius et al. 2018): the loss's gradient is multiplied by a scale, so that small gradients do not
// vanish in fp16; the update divides by it, and skips a step whose gradients are not finite. The scale is a state of
// the training: it is part of checkpoints, and every rank moves its own copy by the same numbers.
#pragma once
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinOps.h"

#include <optional>

namespace cleave::passes {

/// Module attribute `cleave.loss_scale`, a dictionary: initial, dynamic, growth_interval. A dynamic scale does not grow
/// beyond largestLossScale.
struct LossScale {
  double initial = 65536;        ///< 2^16
  bool dynamic = true;           ///< false: `initial` stays
  int64_t growthInterval = 2000; ///< clean steps after which the scale doubles; a step that is skipped halves it

  /// Of a module; none where it has no such attribute.
  static std::optional<LossScale> of(mlir::ModuleOp module);
  void setOn(mlir::ModuleOp module) const;
};

/// Names of the states, each tensor<f32>: the scale, clean steps since it changed, steps skipped so far.
inline constexpr const char *lossScaleState = "loss_scale", *cleanStepsState = "loss_scale.clean_steps",
                            *skippedStepsState = "loss_scale.skipped_steps";

} // namespace cleave::passes
