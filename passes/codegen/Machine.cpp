// LLVM target machines and pass pipelines.
#include "passes/codegen/Machine.h"

#include "runtime/base/Error.h"

#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Verifier.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/raw_ostream.h"

#include <cassert>
#include <string>

namespace cleave::passes::kernel {

std::unique_ptr<llvm::TargetMachine> makeMachine(llvm::StringRef tripleName, llvm::StringRef cpu,
                                                 llvm::StringRef features, std::optional<llvm::Reloc::Model> relocation,
                                                 llvm::CodeGenOptLevel level) {
  llvm::Triple triple(tripleName);
  std::string error;
  const llvm::Target *target = llvm::TargetRegistry::lookupTarget(triple, error);
  assert(target && "the target is missing");
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  return std::unique_ptr<llvm::TargetMachine>(
      target->createTargetMachine(triple, cpu, features, options, relocation, std::nullopt, level));
}

void prepareModule(llvm::Module &module, const llvm::TargetMachine &machine) {
  module.setDataLayout(machine.createDataLayout());
  module.setTargetTriple(machine.getTargetTriple());
}

void runPasses(llvm::Module &module, llvm::TargetMachine &machine,
               llvm::function_ref<llvm::ModulePassManager(llvm::PassBuilder &)> pipeline) {
  std::string problem;
  llvm::raw_string_ostream stream(problem);
  if (llvm::verifyModule(module, &stream)) // invalid IR would become code that crashes when it runs
    throw Error(Status::Internal, "code generation: invalid LLVM IR: " + problem.substr(0, 1000));
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  pipeline(builder).run(module, modules);
}

llvm::SmallVector<char, 0> emitCode(llvm::Module &module, llvm::TargetMachine &machine, llvm::CodeGenFileType type) {
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream out(bytes);
  llvm::legacy::PassManager passes;
  [[maybe_unused]] bool failed = machine.addPassesToEmitFile(passes, out, nullptr, type);
  assert(!failed && "the target cannot emit such code");
  passes.run(module);
  return bytes;
}

} // namespace cleave::passes::kernel
