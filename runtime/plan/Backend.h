// Where a plan runs.
#pragma once
#include "runtime/base/Target.h"
#include "runtime/plan/plan_generated.h"

namespace cleave {

/// Of a plan that has been checked, or is being checked: what names no known backend is for CPUs.
inline Target::Kind backendOf(const plan::Plan &plan) {
  return plan.backend() && plan.backend()->string_view() == text(Target::Kind::Cuda) ? Target::Kind::Cuda
                                                                                     : Target::Kind::Cpu;
}

} // namespace cleave
