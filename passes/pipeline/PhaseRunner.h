// Passes in named phases. After each phase the IR is verified, unless that is switched off, and printed if requested.
#pragma once
#include "runtime/base/Stopped.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

#include <memory>
#include <string>
#include <vector>

namespace cleave::passes {

class PhaseRunner {
public:
  /// `names`: the phases, in order; `printAfter`: those after which the IR is printed to standard error, which must
  /// outlive the runner. `stops`: asked after every phase. Throws userError if a phase has no such name.
  PhaseRunner(const std::vector<std::string> &names, const std::vector<std::string> &printAfter, bool verifies = true,
              Stops stops = {});

  /// Runs passes on `module` and ends the phase. Throws the error of a pass.
  template <class... Passes>
  void run(const std::string &phase, mlir::ModuleOp module, std::unique_ptr<Passes>... passes) const {
    std::vector<std::unique_ptr<mlir::Pass>> list;
    (list.push_back(std::move(passes)), ...);
    runPasses(phase, module, std::move(list));
    end(phase, module);
  }
  /// Ends a phase that left this IR: verifies and perhaps prints it. Throws an internal error if it is invalid, and
  /// Stopped.
  void end(const std::string &phase, mlir::ModuleOp module) const;

private:
  void runPasses(const std::string &phase, mlir::ModuleOp module, std::vector<std::unique_ptr<mlir::Pass>> list) const;

  const std::vector<std::string> &printAfter;
  bool verifies;
  Stops stops;
};

} // namespace cleave::passes
