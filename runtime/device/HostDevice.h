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

// One for every kind of step that prepare() does not treat itself, each in a file of this folder. They throw
// environment errors for what they do not support.
#define CLEAVE_STEP(Kind) std::unique_ptr<Op> makeHostOp(const plan::Kind &op, SlotScope &scope, unsigned threads);
#include "runtime/plan/StepKinds.inc"

} // namespace cleave
