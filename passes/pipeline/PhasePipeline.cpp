// Phases are followed by an instrumentation of the pass manager, which also verifies after every pass.
#include "passes/pipeline/PhasePipeline.h"

#include "passes/rewrite/ThrowingPass.h"
#include "runtime/base/Error.h"
#include "runtime/base/StandardStreams.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassInstrumentation.h"
#include "llvm/Support/raw_ostream.h"

#include <fmt/format.h>

using namespace mlir;

namespace cleave::passes {

struct PhasePipeline::Instrumentation : PassInstrumentation {
  explicit Instrumentation(PhasePipeline &pipeline) : pipeline(pipeline) {}
  void runAfterPass(Pass *pass, Operation *op) override { pipeline.printPhasesEndedBy(pass, op); }
  void runAfterPassFailed(Pass *pass, Operation *) override { pipeline.failed = pass; }
  PhasePipeline &pipeline;
};

PhasePipeline::PhasePipeline(MLIRContext *context, const std::vector<std::string> &printAfter)
    : printAfter(printAfter), manager(PassManager::on<ModuleOp>(context)) {
  manager.enableVerifier();
  manager.addInstrumentation(std::make_unique<Instrumentation>(*this));
}

void PhasePipeline::append(std::unique_ptr<Pass> pass) {
  phases.back().last = pass.get();
  passes.push_back(pass.get());
  manager.addPass(std::move(pass));
}

std::vector<std::string> PhasePipeline::names() const {
  std::vector<std::string> names;
  for (const Phase &phase : phases)
    names.push_back(phase.name);
  return names;
}

void PhasePipeline::printPhasesEndedBy(Pass *pass, Operation *module) const {
  for (const Phase &phase : phases) {
    if (phase.last != pass || !llvm::is_contained(printAfter, phase.name))
      continue;
    std::string text;
    llvm::raw_string_ostream out(text);
    out << "// ---- IR after " << phase.name << " ----\n";
    module->print(out);
    out << '\n';
    printOnStandardError(text);
  }
}

std::string PhasePipeline::phaseOf(Pass *pass) const {
  const auto place = [&](Pass *of) { return llvm::find(passes, of) - passes.begin(); };
  for (const Phase &phase : phases)
    if (phase.last && place(pass) <= place(phase.last))
      return phase.name;
  return phases.front().name;
}

void PhasePipeline::run(ModuleOp module) {
  std::string messages;
  llvm::raw_string_ostream stream(messages);
  ScopedDiagnosticHandler handler(module.getContext(), [&](Diagnostic &diagnostic) {
    stream << diagnostic.getLocation() << ": " << diagnostic << '\n';
    return success();
  });
  const bool valid = phases.front().last || succeeded(mlir::verify(module));
  if (valid)
    printPhasesEndedBy(nullptr, module);
  if (valid && succeeded(manager.run(module)))
    return;
  if (auto *kept = dynamic_cast<KeptError *>(failed); kept && kept->error)
    std::rethrow_exception(kept->error);
  throw Error(Status::Internal, fmt::format("invalid IR after {}: {}", phaseOf(failed), messages));
}

} // namespace cleave::passes
