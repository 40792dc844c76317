// Helpers for compiling to any target: a target machine, a pass pipeline, and code from a module.
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

/// A machine for a target that the caller has initialised. Multiply-add contraction is off: a value that is computed in
/// two kernels, or twice in one, must be bit-identical, so that comparisons of it (sort, argmax, the gradient of max)
/// hold.
std::unique_ptr<llvm::TargetMachine> makeMachine(llvm::StringRef triple, llvm::StringRef cpu, llvm::StringRef features,
                                                 std::optional<llvm::Reloc::Model> relocation,
                                                 llvm::CodeGenOptLevel level);

/// Sets a module's triple and data layout.
void prepareModule(llvm::Module &module, const llvm::TargetMachine &machine);

/// Verifies the module and runs the pass pipeline that `pipeline` builds. Throws an internal error for invalid LLVM IR.
void runPasses(llvm::Module &module, llvm::TargetMachine &machine,
               llvm::function_ref<llvm::ModulePassManager(llvm::PassBuilder &)> pipeline);

/// Compiles the module to object code or assembly.
llvm::SmallVector<char, 0> emitCode(llvm::Module &module, llvm::TargetMachine &machine, llvm::CodeGenFileType type);

} // namespace cleave::passes::kernel
