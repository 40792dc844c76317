// One pass manager per phase. It does not verify after every pass, because that takes as long as some passes on a large
// model; the IR is verified at the end of a phase.
#include "passes/pipeline/PhasePipeline.h"

#include "passes/rewrite/ThrowingPass.h"
#include "runtime/base/Error.h"
#include "runtime/base/StandardStreams.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"
#include "llvm/Support/raw_ostream.h"

#include <fmt/format.h>

using namespace mlir;

namespace cleave::passes {

PhasePipeline::PhasePipeline(MLIRContext *context, const std::vector<std::string> &printAfter)
    : context(context), printAfter(printAfter) {}

void PhasePipeline::append(std::unique_ptr<Pass> pass) {
  std::unique_ptr<PassManager> &passes = phases.back().passes;
  if (!passes) {
    passes = std::make_unique<PassManager>(context, ModuleOp::getOperationName());
    passes->enableVerifier(false);
  }
  passes->addPass(std::move(pass));
}

std::vector<std::string> PhasePipeline::names() const {
  std::vector<std::string> names;
  for (const Phase &phase : phases)
    names.push_back(phase.name);
  return names;
}

void PhasePipeline::print(const std::string &phase, ModuleOp module) const {
  if (!llvm::is_contained(printAfter, phase))
    return;
  std::string text;
  llvm::raw_string_ostream out(text);
  out << "// ---- IR after " << phase << " ----\n";
  module.print(out);
  out << '\n';
  printOnStandardError(text);
}

/// Throws the error that a pass has kept, if there is one.
static void throwKept(PassManager &passes) {
  for (Pass &pass : passes.getPasses())
    if (auto *kept = dynamic_cast<KeptError *>(&pass); kept && kept->error)
      std::rethrow_exception(kept->error);
}

void PhasePipeline::run(ModuleOp module) {
  std::string messages;
  llvm::raw_string_ostream stream(messages);
  ScopedDiagnosticHandler handler(context, [&](Diagnostic &diagnostic) {
    stream << diagnostic.getLocation() << ": " << diagnostic << '\n';
    return success();
  });
  for (const Phase &phase : phases) {
    if (phase.passes && failed(phase.passes->run(module))) {
      throwKept(*phase.passes);
      throw Error(Status::Internal, fmt::format("{} failed: {}", phase.name, messages));
    }
    if ((phase.passes || &phase == &phases.front()) && failed(mlir::verify(module)))
      throw Error(Status::Internal, fmt::format("invalid IR after {}: {}", phase.name, messages));
    print(phase.name, module);
  }
}

} // namespace cleave::passes
