// The dispatch over the kinds of steps.
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

static_assert(plan::StepOp::MAX == plan::StepOp::KernelBatch, "a kind of step is missing in visit");

/// Calls fn with the table of the step's kind (plan::Matmul, ...). fn must take every kind, so that a forgotten one
/// does not compile. The step must be known().
template <typename Fn> decltype(auto) visit(const plan::Step &step, Fn &&fn) {
  switch (step.op_type()) {
  case plan::StepOp::Matmul:
    return fn(*step.op_as_Matmul());
  case plan::StepOp::Conv:
    return fn(*step.op_as_Conv());
  case plan::StepOp::Pool:
    return fn(*step.op_as_Pool());
  case plan::StepOp::Kernel:
    return fn(*step.op_as_Kernel());
  case plan::StepOp::Copy:
    return fn(*step.op_as_Copy());
  case plan::StepOp::Fill:
    return fn(*step.op_as_Fill());
  case plan::StepOp::Embedding:
    return fn(*step.op_as_Embedding());
  case plan::StepOp::EmbeddingGrad:
    return fn(*step.op_as_EmbeddingGrad());
  case plan::StepOp::Gather:
    return fn(*step.op_as_Gather());
  case plan::StepOp::ScatterAdd:
    return fn(*step.op_as_ScatterAdd());
  case plan::StepOp::Random:
    return fn(*step.op_as_Random());
  case plan::StepOp::Collective:
    return fn(*step.op_as_Collective());
  case plan::StepOp::Send:
    return fn(*step.op_as_Send());
  case plan::StepOp::Recv:
    return fn(*step.op_as_Recv());
  case plan::StepOp::Attention:
    return fn(*step.op_as_Attention());
  case plan::StepOp::KernelBatch:
    return fn(*step.op_as_KernelBatch());
  case plan::StepOp::NONE:
    break;
  }
  throw environmentError("plan: a step of unknown kind");
}

} // namespace cleave::steps
