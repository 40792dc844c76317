// A pass manager whose passes form named phases: after each phase the IR is valid, and is printed where that was asked
// for.
#pragma once
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/PassManager.h"

#include <memory>
#include <string>
#include <vector>

namespace cleave::passes {

class PhasePipeline {
public:
  /// Prints to standard error after the phases that `printAfter` names. It outlives the pipeline.
  PhasePipeline(mlir::MLIRContext *context, const std::vector<std::string> &printAfter);

  /// Appends a phase. One without passes ends where the phase before it does.
  template <class... Passes> void add(const std::string &phase, std::unique_ptr<Passes>... passes) {
    phases.push_back({phase, phases.empty() ? nullptr : phases.back().last});
    (append(std::move(passes)), ...);
  }
  /// The names of the phases, in order.
  std::vector<std::string> names() const;

  /// Runs all phases on `module`. Throws what a pass throws, and an internal error where a phase leaves invalid IR.
  void run(mlir::ModuleOp module);

private:
  struct Phase {
    std::string name;
    mlir::Pass *last; // null: it ends before the first pass
  };
  struct Instrumentation;

  void append(std::unique_ptr<mlir::Pass> pass);
  void printPhasesEndedBy(mlir::Pass *pass, mlir::Operation *module) const;
  /// The phase that a pass belongs to.
  std::string phaseOf(mlir::Pass *pass) const;

  const std::vector<std::string> &printAfter;
  mlir::PassManager manager;
  std::vector<Phase> phases;
  std::vector<mlir::Pass *> passes;
  mlir::Pass *failed = nullptr;
};

} // namespace cleave::passes
