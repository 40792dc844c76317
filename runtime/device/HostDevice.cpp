// Dispatches steps to the functions that create Ops; numbers slots; runs generated kernels.
#include "runtime/device/HostDevice.h"

#include "runtime/base/Error.h"
#include "runtime/device/Parallel.h"
#include "runtime/plan/Inputs.h"
#include "runtime/plan/steps/Kernels.h"
#include "runtime/plan/steps/Visit.h"

#include <algorithm>
#include <fmt/format.h>

namespace cleave {

uint32_t SlotScope::local(uint32_t slot) {
  auto [found, fresh] = places.try_emplace(slot, static_cast<uint32_t>(list.size()));
  if (fresh)
    list.push_back(slot);
  return found->second;
}

const plan::Slot &SlotScope::slot(uint32_t slot) const { return *program.slots()->Get(slot); }

int64_t SlotScope::rows() const {
  const int64_t batch = segment.kind() == plan::SegmentKind::Eval ? evalBatchOf(plan) : plan.batch();
  return std::max<int64_t>(1, batch / std::max(1u, plan.microbatches()));
}

int64_t SlotScope::scalar(int32_t index, int64_t none) const {
  return index < 0 ? none : rank.scalars()->Get(static_cast<uint32_t>(index));
}

StepOperand operandOf(const plan::View &view, SlotScope &scope) {
  return {scope.local(view.slot()), static_cast<int64_t>(view.offset())};
}

KernelOperands::KernelOperands(const plan::Kernel &kernel, SlotScope &scope) {
  for (uint32_t i = 0; i < check::length(kernel.args()); ++i)
    buffers.push_back({scope.local(kernel.args()->Get(i)), static_cast<int64_t>(steps::offsetOf(kernel, i))});
  if (kernel.scalars())
    for (const uint32_t scalar : *kernel.scalars())
      scalars.push_back(scope.scalar(static_cast<int32_t>(scalar), 0));
}

namespace {

/// Calls a generated kernel; directly if the range is at most one grain.
class KernelOp final : public Op {
public:
  KernelOp(const plan::Kernel &kernel, SlotScope &scope, const KernelTable &kernels, unsigned threads)
      : function(kernels[kernel.kernel()]), operands(kernel, scope), extent(kernel.extent()),
        grain(std::max<int64_t>(1, kernel.grain())), threads(threads) {
    args.resize(operands.buffers.size());
  }

  void run(SlotTable slots, const RunContext &) override {
    for (size_t i = 0; i < args.size(); ++i)
      args[i] = operands.buffers[i].at(slots);
    parallelRange(threads, extent, grain,
                  [this](int64_t begin, int64_t end) { function(args.data(), operands.scalars.data(), begin, end); });
  }

private:
  KernelFunction function;
  KernelOperands operands;
  std::vector<void *> args;
  int64_t extent, grain;
  unsigned threads;
};

std::unique_ptr<Op> makeKernelOp(const plan::Kernel &kernel, SlotScope &scope, const KernelTable &kernels,
                                 unsigned threads) {
  if (kernels.empty() || !kernels[kernel.kernel()])
    throw environmentError("plan: it carries no code (it was made without), so its kernels cannot run");
  return std::make_unique<KernelOp>(kernel, scope, kernels, threads);
}

/// Independent calls, run one after another.
class KernelBatchOp final : public Op {
public:
  KernelBatchOp(const plan::KernelBatch &batch, SlotScope &scope, const KernelTable &kernels, unsigned threads) {
    for (const plan::Kernel *call : *batch.calls())
      calls.push_back(makeKernelOp(*call, scope, kernels, threads));
  }
  void run(SlotTable slots, const RunContext &context) override {
    for (const auto &call : calls)
      call->run(slots, context);
  }

private:
  std::vector<std::unique_ptr<Op>> calls;
};

} // namespace

std::unique_ptr<Op> HostDevice::prepare(const plan::Step &step, SlotScope &scope, const KernelTable &kernels) {
  return steps::visit(step, [&]<typename Kind>(const Kind &op) -> std::unique_ptr<Op> {
    if constexpr (steps::oneOf<Kind, plan::Matmul, plan::Conv, plan::Pool, plan::Attention>)
      return prepareLibrary(step, scope);
    else if constexpr (std::same_as<Kind, plan::Kernel>)
      return makeKernelOp(op, scope, kernels, threads);
    else if constexpr (std::same_as<Kind, plan::KernelBatch>)
      return std::make_unique<KernelBatchOp>(op, scope, kernels, threads);
    else if constexpr (steps::oneOf<Kind, plan::Collective, plan::Send, plan::Recv>)
      throw environmentError(
          fmt::format("plan: a device cannot run a step of kind {}", EnumNameStepOp(step.op_type())));
    else
      return makeHostOp(op, scope, threads);
  });
}

} // namespace cleave
