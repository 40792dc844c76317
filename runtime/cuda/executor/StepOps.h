// Steps of the plan as Ops that enqueue work into a stream. Running an Op allocates nothing and makes no decisions.
#pragma once
#include "runtime/cuda/kernels/OwnKernels.h"
#include "runtime/device/Device.h"
#include "runtime/device/Tuning.h"
#include "runtime/plan/plan_generated.h"

#include <memory>
#include <vector>

namespace cleave::cuda {

struct StepOptions {
  bool tf32 = false;         ///< f32 products and convolutions on tensor cores, with inputs rounded to 10 bits
  bool deterministic = true; ///< no library algorithm with nondeterministic results
  size_t workspaceLimit = 0; ///< maximum per library step
};

class CublasLt;
class CudnnHandle;

/// Creates the Ops of one rank. The queue and the context must outlive them.
class StepOps {
public:
  StepOps(const Context &context, const Queue &queue, Tuning &tuning, const StepOptions &options,
          std::vector<CUfunction> planKernels);
  ~StepOps();
  /// For all steps except collectives and messages. Throws for a step or type that the device does not support, and for
  /// a library that is missing or does not support the shape.
  std::unique_ptr<Op> make(const plan::Step &step, SlotScope &scope);
  /// Whether cuBLASLt or cuDNN runs the step.
  static bool usesLibrary(const plan::Step &step);
  OwnKernels &kernels() { return own; }
  /// Scratch memory that the Ops created so far need; used by one at a time.
  size_t workspaceBytes() const { return workspace; }

private:
  /// A generated kernel, or a batch of calls of it, of which `call` is one.
  template <typename Kind> std::unique_ptr<Op> generated(const Kind &op, const plan::Kernel &call, SlotScope &scope);
  std::unique_ptr<Op> makeLibraryStep(const plan::Step &step, SlotScope &scope);
  std::unique_ptr<Op> makeCudnnStep(const plan::Step &step, SlotScope &scope, size_t &needed);

  const Context &context;
  const Queue &queue;
  Tuning &tuning;
  StepOptions options;
  OwnKernels own;
  std::vector<CUfunction> planKernels;
  std::unique_ptr<CublasLt> cublas;
  std::unique_ptr<CudnnHandle> cudnn; ///< of the compute stream
  size_t workspace = 0;
};

// Implemented in this folder and in runtime/cuda/kernels.
std::unique_ptr<Op> makeGeneratedOp(const plan::Kernel &op, SlotScope &scope, const Queue &queue, CUfunction function,
                                    unsigned threads);
std::unique_ptr<Op> makeGeneratedOp(const plan::KernelBatch &op, SlotScope &scope, const Queue &queue,
                                    CUfunction function, unsigned threads);
// One for every kind of step that neither a library nor generated code runs.
#define CLEAVE_STEP(Kind)                                                                                              \
  std::unique_ptr<Op> makeOwnOp(const plan::Kind &op, SlotScope &scope, const Queue &queue, OwnKernels &kernels);
#include "runtime/plan/StepKinds.inc"

} // namespace cleave::cuda
