// Steps that host devices run with the runtime's own loops: generated kernels, copies, lookups, random numbers. They
// are parallel over independent outputs, so the bits do not depend on the number of threads.
#pragma once
#include "runtime/device/Device.h"
#include "runtime/plan/plan_generated.h"

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
std::unique_ptr<Op> makeHostOp(const plan::Copy &op, SlotScope &scope, unsigned threads);
std::unique_ptr<Op> makeHostOp(const plan::Fill &op, SlotScope &scope, unsigned threads);
std::unique_ptr<Op> makeHostOp(const plan::Embedding &op, SlotScope &scope, unsigned threads);
std::unique_ptr<Op> makeHostOp(const plan::EmbeddingGrad &op, SlotScope &scope, unsigned threads);
std::unique_ptr<Op> makeHostOp(const plan::Gather &op, SlotScope &scope, unsigned threads);
std::unique_ptr<Op> makeHostOp(const plan::ScatterAdd &op, SlotScope &scope, unsigned threads);
std::unique_ptr<Op> makeHostOp(const plan::Random &op, SlotScope &scope, unsigned threads);

} // namespace cleave
