// Translates loop nests to LLVM IR.
#pragma once
#include "passes/codegen/nest/Sizes.h"

#include <string>

namespace llvm {
class Function;
class Module;
} // namespace llvm

namespace cleave::passes::kernel {

/// Adds the kernel `name` (ABI in Codegen.h) to `module`. Vector operations are explicit; loops are ordinary loops.
/// If there are `sizes`, the kernel has a fifth argument, const uint64_t *, from which it reads them, and no name
/// outside of the shared object.
llvm::Function *emitKernel(const LoopNest &nest, const Sizes &sizes, llvm::Module &module, const std::string &name);

} // namespace cleave::passes::kernel
