// The kinds of tensors in a plan and of the arguments from which they come.
#pragma once
#include "ir/graph/SlotKind.h"
#include "runtime/plan/PlanTypes.h"

namespace cleave::passes {

/// Activation for a kind that the plan does not name.
plan::TensorKind tensorKindOf(ir::SlotKind kind);
/// Parameter, Buffer, State and Gradient: what a rank keeps a piece of. None for other kinds.
ir::SlotKind keptKindOf(plan::TensorKind kind);

} // namespace cleave::passes
