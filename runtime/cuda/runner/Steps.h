// Steps of the plan as Ops that put work into a stream. Running one allocates nothing and decides nothing.
#pragma once
#include "runtime/cuda/kernels/OwnKernels.h"
#include "runtime/cuda/library/Tuning.h"
#include "runtime/device/Device.h"

#include <memory>
#include <vector>

namespace cleave::cuda {

struct StepOptions {
  bool tf32 = false;         ///< f32 products and convolutions on the matrix units, inputs rounded to 10 bits
  bool deterministic = true; ///< no library algorithm whose bits change from run to run
  size_t workspaceLimit = 0; ///< of a library step
};

class CublasLt;
class CudnnHandle;

/// Makes the Ops of one rank. The queue and the context outlive them.
class Steps {
public:
  Steps(const Context &context, const Queue &queue, Tuning &tuning, const StepOptions &options,
        std::vector<CUfunction> planKernels);
  ~Steps();
  /// For all steps but collectives and messages. Errors: a step or a type that the device cannot run, a library that is
  /// missing or has nothing for the shape.
  std::unique_ptr<Op> make(const plan::Step &step, SlotScope &scope);
  OwnKernels &kernels() { return own; }
  /// Scratch memory that the Ops made so far need; one at a time uses it.
  size_t workspaceBytes() const { return workspace; }

private:
  std::unique_ptr<Op> makeLibraryStep(const plan::Step &step, SlotScope &scope);
  std::unique_ptr<Op> makeCudnnStep(const plan::Step &step, SlotScope &scope, size_t &needed);

  const Context &context;
  const Queue &queue;
  Tuning &tuning;
  StepOptions options;
  OwnKernels own;
  std::vector<CUfunction> planKernels;
  std::unique_ptr<CublasLt> cublas;
  std::unique_ptr<CudnnHandle> cudnn; ///< of the stream that computes
  size_t workspace = 0;
};

// Each file of the folder gives some of these.
std::unique_ptr<Op> makeKernelOp(const plan::Step &step, SlotScope &scope, const Queue &queue, CUfunction function,
                                 unsigned threads);
std::unique_ptr<Op> makeKernelBatchOp(const plan::Step &step, SlotScope &scope, const Queue &queue, CUfunction function,
                                      unsigned threads);
std::unique_ptr<Op> makeCopyOp(const plan::Step &step, SlotScope &scope, const Queue &queue, OwnKernels &kernels);
std::unique_ptr<Op> makeFillOp(const plan::Step &step, SlotScope &scope, const Queue &queue, OwnKernels &kernels);
std::unique_ptr<Op> makeEmbeddingOp(const plan::Step &step, SlotScope &scope, const Queue &queue, OwnKernels &kernels);
std::unique_ptr<Op> makeEmbeddingGradOp(const plan::Step &step, SlotScope &scope, const Queue &queue,
                                        OwnKernels &kernels, size_t &workspace);
std::unique_ptr<Op> makeGatherOp(const plan::Step &step, SlotScope &scope, const Queue &queue, OwnKernels &kernels);
std::unique_ptr<Op> makeScatterAddOp(const plan::Step &step, SlotScope &scope, const Queue &queue, OwnKernels &kernels);
std::unique_ptr<Op> makeRandomOp(const plan::Step &step, SlotScope &scope, const Queue &queue, OwnKernels &kernels);
std::unique_ptr<Op> makePoolOp(const plan::Step &step, SlotScope &scope, const Queue &queue, OwnKernels &kernels);

} // namespace cleave::cuda
