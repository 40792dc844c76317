// What only plans for GPUs have: every step's stream, the waits between streams, the workspace of library steps.
#pragma once
#include "runtime/plan/plan_generated.h"

namespace cleave::passes {

/// Fills Step.stream, Action.waits and the programs' workspace and peak bytes. The plan is whole but for its code.
void assignStreams(plan::PlanT &plan);

} // namespace cleave::passes
