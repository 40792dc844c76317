// Dispatches steps to the functions that create Ops, and runs the plan's generated kernels.
#include "runtime/cuda/executor/StepOps.h"

#include "runtime/base/Error.h"
#include "runtime/cuda/library/CublasLt.h"
#include "runtime/cuda/library/Cudnn.h"
#include "runtime/plan/steps/Steps.h"
#include "runtime/plan/steps/Visit.h"

#include <fmt/format.h>

#include <algorithm>

namespace cleave::cuda {

namespace {

/// Launches a generated kernel; parameters are the buffers, the scalars and the extent (passes/codegen/gpu/GpuEmit.h).
class KernelOp final : public Op {
public:
  KernelOp(const plan::Kernel &kernel, SlotScope &scope, const Queue &queue, CUfunction function, unsigned threads)
      : function(function), blocks(std::max(1u, kernel.blocks())), threads(threads), extent(kernel.extent()),
        operands(kernel, scope), queue(queue) {
    addresses.resize(operands.buffers.size());
    for (std::byte *&address : addresses)
      parameters.push_back(&address);
    for (int64_t &scalar : operands.scalars)
      parameters.push_back(&scalar);
    parameters.push_back(&extent);
  }
  KernelOp(const KernelOp &) = delete;

  void run(SlotTable slots, const RunContext &) override {
    if (extent == 0)
      return;
    for (size_t i = 0; i < addresses.size(); ++i)
      addresses[i] = operands.buffers[i].at(slots);
    check(driver().launchKernel(function, blocks, 1, 1, threads, 1, 1, 0, queue.stream, parameters.data(), nullptr),
          "cuLaunchKernel");
  }

private:
  CUfunction function;
  unsigned blocks, threads;
  int64_t extent;
  KernelOperands operands;
  std::vector<std::byte *> addresses;
  std::vector<void *> parameters; ///< pointers to the addresses, scalars and extent above
  const Queue &queue;
};

} // namespace

std::unique_ptr<Op> makeGeneratedOp(const plan::Kernel &op, SlotScope &scope, const Queue &queue, CUfunction function,
                                    unsigned threads) {
  return std::make_unique<KernelOp>(op, scope, queue, function, threads);
}

StepOps::StepOps(const Context &context, const Queue &queue, Tuning &tuning, const StepOptions &options,
                 std::vector<CUfunction> planKernels)
    : context(context), queue(queue), tuning(tuning), options(options), planKernels(std::move(planKernels)) {}
StepOps::~StepOps() = default;

std::unique_ptr<Op> StepOps::make(const plan::Step &step, SlotScope &scope) {
  return steps::visit(step, [&]<typename Kind>(const Kind &op) -> std::unique_ptr<Op> {
    if constexpr (std::same_as<Kind, plan::Kernel>)
      return generated(op, op, scope);
    else if constexpr (std::same_as<Kind, plan::KernelBatch>)
      return generated(op, *op.calls()->Get(0), scope);
    else if constexpr (steps::oneOf<Kind, plan::Matmul, plan::Conv, plan::Attention, plan::Collective, plan::Send,
                                    plan::Recv>)
      return makeLibraryStep(step, scope);
    else {
      workspace = std::max(workspace, steps::onGpu(step).workspace);
      return makeOwnOp(op, scope, queue, own);
    }
  });
}

template <typename Kind>
std::unique_ptr<Op> StepOps::generated(const Kind &op, const plan::Kernel &call, SlotScope &scope) {
  if (planKernels.empty())
    throw environmentError("plan: it carries no code (it was made without), so its kernels cannot run");
  return makeGeneratedOp(op, scope, queue, planKernels[call.kernel()],
                         scope.plan.kernels()->Get(call.kernel())->threads());
}

bool StepOps::usesLibrary(const plan::Step &step) {
  const steps::OnGpu::Library library = steps::onGpu(step).library;
  return library == steps::OnGpu::CublasLt || library == steps::OnGpu::Cudnn;
}

std::unique_ptr<Op> StepOps::makeLibraryStep(const plan::Step &step, SlotScope &scope) {
  size_t needed = 0;
  std::unique_ptr<Op> op;
  if (step.op_type() == plan::StepOp::Matmul) {
    if (!cublas)
      cublas = std::make_unique<CublasLt>();
    op = cublas->product(step, scope, context, queue, own, tuning, options, needed);
  }
  if (step.op_type() == plan::StepOp::Conv || step.op_type() == plan::StepOp::Attention)
    op = makeCudnnStep(step, scope, needed);
  if (!op)
    throw environmentError(
        fmt::format("cuda: a step of kind {} is not supported by this build", plan::EnumNameStepOp(step.op_type())));
  workspace = std::max(workspace, needed);
  return op;
}

} // namespace cleave::cuda
