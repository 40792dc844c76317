// Matrix products with cuBLASLt. This header uses none of the library's types.
#pragma once
#include "runtime/cuda/executor/StepOps.h"

#include <memory>
#include <string>

namespace cleave::cuda {

class CublasLt {
public:
  /// Opens the library and creates a handle on the current device. Throws an environment error if it is missing.
  CublasLt();
  ~CublasLt();
  /// "13.0.0"
  std::string version() const;
  /// c (+)= a * b with a bias. Sets `workspace` to the bytes needed. Throws an environment error if the library has no
  /// algorithm for the shape within the limit.
  std::unique_ptr<Op> product(const plan::Step &step, SlotScope &scope, const Context &context, const Queue &queue,
                              OwnKernels &kernels, Tuning &tuning, const StepOptions &options, size_t &workspace);

  struct Functions;

private:
  std::unique_ptr<Functions> functions;
};

} // namespace cleave::cuda
