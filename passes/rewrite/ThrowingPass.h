// Passes whose work throws cleave::Error. MLIR is built without exceptions, so none may leave a pass: it ends as a
// diagnostic, and is kept for whoever runs the pass manager and wants to throw it again.
#pragma once
#include "ir/dist/Dist.h"
#include "ir/graph/Graph.h"

#include "mlir/Pass/Pass.h"

#include <exception>

namespace cleave::passes {

/// What ended a pass; null: nothing did.
struct KeptError {
  std::exception_ptr error;
};

/// A pass by the base class that mlir-tblgen made for it (passes/Passes.td).
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
