// What compiling for any target needs of LLVM: a target machine, a pass pipeline, and code from a module.
#pragma once
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/IR/PassManager.h"
#include "llvm/Target/TargetMachine.h"

#include <memory>

namespace llvm {
class Module;
class PassBuilder;
} // namespace llvm

namespace cleave::passes::kernel {

/// A machine for a target that the caller has initialised. Products and sums are not contracted to one rounding: a value
/// that two kernels compute, or one kernel at two places, is the same number everywhere, so that comparisons of it (sort,
/// argmax, the gradient of max) hold.
std::unique_ptr<llvm::TargetMachine> makeMachine(llvm::StringRef triple, llvm::StringRef cpu, llvm::StringRef features,
                                                 std::optional<llvm::Reloc::Model> relocation,
                                                 llvm::CodeGenOptLevel level);

/// Gives a module the machine's triple and data layout.
void prepareModule(llvm::Module &module, const llvm::TargetMachine &machine);

/// Runs the passes that `pipeline` makes.
void runPasses(llvm::Module &module, llvm::TargetMachine &machine,
               llvm::function_ref<llvm::ModulePassManager(llvm::PassBuilder &)> pipeline);

/// The module as object code or assembly.
llvm::SmallVector<char, 0> emitCode(llvm::Module &module, llvm::TargetMachine &machine, llvm::CodeGenFileType type);

} // namespace cleave::passes::kernel
