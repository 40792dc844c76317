// Passes in named phases. After each phase the IR is verified, and printed if requested.
#pragma once
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/PassManager.h"

#include <memory>
#include <string>
#include <vector>

namespace cleave::passes {

class PhasePipeline {
public:
  /// `printAfter`: phases after which the IR is printed to standard error. It must outlive the pipeline.
  PhasePipeline(mlir::MLIRContext *context, const std::vector<std::string> &printAfter);

  /// Appends a phase. A phase without passes leaves the IR unchanged.
  template <class... Passes> void add(const std::string &name, std::unique_ptr<Passes>... passes) {
    phases.push_back({name, nullptr});
    (append(std::move(passes)), ...);
  }
  /// The names of the phases, in order.
  std::vector<std::string> names() const;

  /// Runs all phases on `module`. Throws the error of a pass, and an internal error if a phase produces invalid IR, or
  /// if `module` is invalid and the first phase has no passes.
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
