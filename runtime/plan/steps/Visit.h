// The dispatch over the kinds of steps. StepKinds.inc, which is made from plan.fbs, lists them.
#pragma once
#include "runtime/base/Error.h"
#include "runtime/plan/plan_generated.h"

#include <concepts>

namespace cleave::steps {

/// Whether the step is of a kind of this version of the format; a file may hold another number.
inline bool known(const plan::Step &step) {
  return step.op() && step.op_type() > plan::StepOp::NONE && step.op_type() <= plan::StepOp::MAX;
}

/// Whether Op is one of Kinds.
template <typename Op, typename... Kinds> constexpr bool oneOf = (std::same_as<Op, Kinds> || ...);

/// Calls fn with the table of the step's kind (plan::Matmul, ...). fn must take every kind, so that a forgotten one
/// does not compile. The step must be known().
template <typename Fn> decltype(auto) visit(const plan::Step &step, Fn &&fn) {
  switch (step.op_type()) {
#define CLEAVE_STEP(Kind)                                                                                              \
  case plan::StepOp::Kind:                                                                                             \
    return fn(*step.op_as_##Kind());
#include "runtime/plan/StepKinds.inc"
  case plan::StepOp::NONE:
    break;
  }
  throw environmentError("plan: a step of unknown kind");
}

} // namespace cleave::steps
