// Steps that host devices run with the runtime's own loops: generated kernels, copies, lookups, random numbers. They
// are parallel over independent outputs, so the bits do not depend on the number of threads.
#pragma once
#include "runtime/device/Device.h"

namespace cleave {

class HostDevice : public Device {
public:
  explicit HostDevice(unsigned threads) : threads(threads) {}
  std::unique_ptr<Op> prepare(const plan::Step &step, SlotScope &scope, const KernelTable &kernels) override;

protected:
  /// Matmul, Conv, Pool and Attention.
  virtual std::unique_ptr<Op> prepareLibrary(const plan::Step &step, SlotScope &scope) = 0;
  unsigned threads;
};

// Each file in this folder implements some of these; all may throw environment errors for unsupported steps.
std::unique_ptr<Op> makeCopyOp(const plan::Step &step, SlotScope &scope, unsigned threads);
std::unique_ptr<Op> makeFillOp(const plan::Step &step, SlotScope &scope, unsigned threads);
std::unique_ptr<Op> makeEmbeddingOp(const plan::Step &step, SlotScope &scope, unsigned threads);
std::unique_ptr<Op> makeEmbeddingGradOp(const plan::Step &step, SlotScope &scope, unsigned threads);
std::unique_ptr<Op> makeGatherOp(const plan::Step &step, SlotScope &scope, unsigned threads);
std::unique_ptr<Op> makeScatterAddOp(const plan::Step &step, SlotScope &scope, unsigned threads);
std::unique_ptr<Op> makeRandomOp(const plan::Step &step, SlotScope &scope, unsigned threads);

} // namespace cleave
