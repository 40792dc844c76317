// The kind of device that a plan is compiled for.
#pragma once
#include "runtime/base/Target.h"
#include "runtime/plan/plan_generated.h"

namespace cleave {

/// For a plan that has been checked or is being checked: an unknown or missing backend counts as CPU.
inline Target::Kind backendOf(const plan::Plan &plan) {
  return plan.backend() && plan.backend()->string_view() == text(Target::Kind::Cuda) ? Target::Kind::Cuda
                                                                                     : Target::Kind::Cpu;
}

} // namespace cleave
