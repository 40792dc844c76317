// One pass manager per phase. It does not verify after every pass, because that takes as long as some passes on a large
// model; the IR is verified at the end of a phase.
#include "passes/pipeline/PhaseRunner.h"

#include "passes/rewrite/ThrowingPass.h"
#include "runtime/base/Error.h"
#include "runtime/base/StandardStreams.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/raw_ostream.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

using namespace mlir;

namespace cleave::passes {

PhaseRunner::PhaseRunner(const std::vector<std::string> &names, const std::vector<std::string> &printAfter,
                         bool verifies, Stops stops)
    : printAfter(printAfter), verifies(verifies), stops(std::move(stops)) {
  for (const std::string &name : printAfter)
    if (!llvm::is_contained(names, name))
      throw userError(
          fmt::format("--print-ir-after: there is no phase \"{}\"; there are {}", name, fmt::join(names, ", ")));
}

namespace {

/// Collects MLIR's diagnostics as text.
struct Diagnostics {
  explicit Diagnostics(MLIRContext *context)
      : stream(text), handler(context, [this](Diagnostic &diagnostic) {
          stream << diagnostic.getLocation() << ": " << diagnostic << '\n';
          return success();
        }) {}
  std::string text;
  llvm::raw_string_ostream stream;
  ScopedDiagnosticHandler handler;
};

/// Throws the error that a pass has kept, if there is one.
void throwKept(PassManager &passes) {
  for (Pass &pass : passes.getPasses())
    if (auto *kept = dynamic_cast<KeptError *>(&pass); kept && kept->error)
      std::rethrow_exception(kept->error);
}

} // namespace

void PhaseRunner::runPasses(const std::string &phase, ModuleOp module, std::vector<std::unique_ptr<Pass>> list) const {
  Diagnostics diagnostics(module.getContext());
  PassManager passes(module.getContext(), ModuleOp::getOperationName());
  passes.enableVerifier(false);
  for (std::unique_ptr<Pass> &pass : list)
    passes.addPass(std::move(pass));
  if (succeeded(passes.run(module)))
    return;
  throwKept(passes);
  throw Error(Status::Internal, fmt::format("{} failed: {}", phase, diagnostics.text));
}

void PhaseRunner::end(const std::string &phase, ModuleOp module) const {
  throwIfStopped(stops);
  Diagnostics diagnostics(module.getContext());
  if (verifies && failed(mlir::verify(module)))
    throw Error(Status::Internal, fmt::format("invalid IR after {}: {}", phase, diagnostics.text));
  if (!llvm::is_contained(printAfter, phase))
    return;
  std::string text;
  llvm::raw_string_ostream out(text);
  out << "// ---- IR after " << phase << " ----\n";
  module.print(out);
  out << '\n';
  printOnStandardError(text);
}

} // namespace cleave::passes
