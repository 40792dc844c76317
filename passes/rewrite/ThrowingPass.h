// Passes whose work throws cleave::Error. MLIR is built without exceptions, so an exception must not leave a pass: it
// becomes a diagnostic, and is kept so that the caller of the pass manager can throw it again.
#pragma once
#include "ir/dist/Dist.h"
#include "ir/graph/Graph.h"

#include "mlir/Pass/Pass.h"

#include <exception>

namespace cleave::passes {

/// The exception that ended a pass; null if there is none.
struct KeptError {
  std::exception_ptr error;
};

/// A pass with the base class that mlir-tblgen generates for it (passes/Passes.td).
template <class Base> class ThrowingPass : public Base, public KeptError {
public:
  using Base::Base;

  /// The work of the pass on getOperation().
  virtual void work() = 0;

  void runOnOperation() final {
    try {
      work();
    } catch (const std::exception &thrown) {
      error = std::current_exception();
      this->getOperation()->emitError(thrown.what());
      this->signalPassFailure();
    }
  }
};

} // namespace cleave::passes
