// The optimizer's settings, each described once: plans (plan.fbs), checkpoints (TrainingJson.h) and the IR
// (`cleave.optimizer`) write them by these names.
#pragma once
#include "runtime/plan/plan_generated.h"

#include <array>
#include <limits>
#include <span>
#include <string>
#include <string_view>

namespace cleave {

/// By the values of plan::OptimizerKind.
inline constexpr std::array optimizerNames{"sgd", "adam", "adamw"};

struct OptimizerField {
  const char *name;
  double plan::OptimizerT::*value; ///< at least 0
  double below = std::numeric_limits<double>::infinity();
};

/// The settings of a kind that are numbers. Sgd also has the flag `nesterov`.
inline std::span<const OptimizerField> optimizerFields(plan::OptimizerKind kind) {
  using T = plan::OptimizerT;
  static constexpr OptimizerField sgd[] = {{"weight_decay", &T::weight_decay},
                                           {"clip_norm", &T::clip_norm},
                                           {"ema", &T::ema, 1},
                                           {"momentum", &T::momentum}};
  static constexpr OptimizerField adam[] = {{"weight_decay", &T::weight_decay},
                                            {"clip_norm", &T::clip_norm},
                                            {"ema", &T::ema, 1},
                                            {"beta1", &T::beta1, 1},
                                            {"beta2", &T::beta2, 1},
                                            {"eps", &T::eps}};
  if (kind == plan::OptimizerKind::Sgd)
    return sgd;
  return adam;
}

/// The name of the state that is the average of a parameter.
inline constexpr const char *averageState = "ema";
inline std::string averageOf(std::string_view parameter) { return std::string(parameter) + "." + averageState; }

} // namespace cleave
