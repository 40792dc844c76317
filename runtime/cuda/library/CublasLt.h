// Matrix products by cuBLASLt. The one header of the folder's that speaks of it has none of its types.
#pragma once
#include "runtime/cuda/runner/Steps.h"

#include <memory>
#include <string>

namespace cleave::cuda {

class CublasLt {
public:
  /// Opens the library and makes a handle on the current device. Environment error where it is missing.
  CublasLt();
  ~CublasLt();
  /// "13.0.0"
  std::string version() const;
  /// c (+)= a * b with a bias; `workspace` becomes what it needs. Environment error where the library has no algorithm
  /// for the shape within the limit.
  std::unique_ptr<Op> product(const plan::Step &step, SlotScope &scope, const Context &context, const Queue &queue,
                              OwnKernels &kernels, Tuning &tuning, const StepOptions &options, size_t &workspace);

  struct Functions;

private:
  std::unique_ptr<Functions> functions;
};

} // namespace cleave::cuda
