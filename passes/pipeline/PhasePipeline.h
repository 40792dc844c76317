// Passes in named phases. After each phase the IR is verified, and printed where that was asked for.
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

  /// Appends a phase. One without passes leaves the IR as it is.
  template <class... Passes> void add(const std::string &name, std::unique_ptr<Passes>... passes) {
    phases.push_back({name, nullptr});
    (append(std::move(passes)), ...);
  }
  /// The names of the phases, in order.
  std::vector<std::string> names() const;

  /// Runs all phases on `module`. Throws what a pass throws, and an internal error where a phase leaves invalid IR, or
  /// where the first one has no passes and is given it.
  void run(mlir::ModuleOp module);

private:
  struct Phase {
    std::string name;
    std::unique_ptr<mlir::PassManager> passes; // null: none
  };

  void append(std::unique_ptr<mlir::Pass> pass);
  void print(const std::string &phase, mlir::ModuleOp module) const;

  mlir::MLIRContext *context;
  const std::vector<std::string> &printAfter;
  std::vector<Phase> phases;
};

} // namespace cleave::passes
