// Chooses the description of a step's kind.
#include "runtime/plan/steps/Steps.h"

#include "runtime/plan/steps/Communication.h"
#include "runtime/plan/steps/Kernels.h"
#include "runtime/plan/steps/Lookups.h"
#include "runtime/plan/steps/Moves.h"
#include "runtime/plan/steps/Products.h"
#include "runtime/plan/steps/Visit.h"
#include "runtime/plan/steps/Windows.h"

namespace cleave::steps {

double flops(const plan::Step &step) {
  return visit(step, [](const auto &op) -> double {
    if constexpr (requires { flops(op); })
      return flops(op);
    return 0;
  });
}

/// The FLOPs that a product states (0: none) must follow from its sizes.
static std::string flopsProblem(const plan::Step &step) {
  const double stated = step.flops(), found = flops(step);
  const bool product = step.op_type() == plan::StepOp::Matmul || step.op_type() == plan::StepOp::Conv;
  return !product || stated == found || stated == 0 ? ""
                                                    : fmt::format("{} operations, its sizes take {}", stated, found);
}

Defect problem(const plan::Step &step, const Context &context) {
  if (!step.op())
    return "an empty step";
  if (!known(step))
    return "a step of unknown kind";
  const Defect found = visit(step, [&](const auto &op) -> Defect { return problem(op, context); });
  return found.text.empty() ? Defect{flopsProblem(step), "S13"} : found;
}

Defect placedProblem(const plan::Step &step, const Context &context) {
  if (const auto *copy = step.op_as_Copy())
    return {startProblem(*copy, context), "S8"};
  if (const auto *collective = step.op_as_Collective())
    return {shareProblem(*collective, context), "S7"};
  return {};
}

bool isLinear(const plan::Step &step) {
  return visit(step, [](const auto &op) { return isLinear(op); });
}

Work work(const plan::Step &step, const Context &context) {
  return visit(step, [&](const auto &op) { return work(op, context); });
}

OnGpu onGpu(const plan::Step &step) {
  return visit(step, [](const auto &op) { return onGpu(op); });
}

std::string text(const plan::Step &step, const plan::Plan &plan) {
  return visit(step, [&](const auto &op) { return text(op, plan); });
}

static const plan::Step &packed(const plan::StepT &step, flatbuffers::FlatBufferBuilder &builder) {
  return *flatbuffers::GetTemporaryPointer(builder, plan::Step::Pack(builder, &step));
}

double flops(const plan::StepT &step) {
  flatbuffers::FlatBufferBuilder builder;
  return flops(packed(step, builder));
}

} // namespace cleave::steps

namespace cleave::check {

bool sane(std::initializer_list<int64_t> sizes) {
  uint64_t all = 1;
  for (int64_t size : sizes) {
    if (size < 0 || static_cast<uint64_t>(size) > largest || (size && all > largest / static_cast<uint64_t>(size)))
      return false;
    all *= static_cast<uint64_t>(std::max<int64_t>(1, size));
  }
  return true;
}

void forEachAccess(const plan::Step &step, const plan::Program &program, const std::function<void(const Access &)> &fn,
                   const plan::Plan *plan) {
  const steps::Accesses to{program, fn, plan};
  steps::visit(step, [&](const auto &op) { steps::accesses(op, to); });
}

std::vector<Access> accessesOf(const plan::StepT &step) {
  std::vector<Access> list;
  flatbuffers::FlatBufferBuilder builder;
  const auto none = plan::CreateProgram(builder);
  const plan::Step &read = steps::packed(step, builder); // before the other pointer: the buffer moves as it grows
  forEachAccess(read, *flatbuffers::GetTemporaryPointer(builder, none),
                [&](const Access &access) { list.push_back(access); });
  return list;
}

} // namespace cleave::check
