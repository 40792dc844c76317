// Translates loop nests to LLVM IR.
#pragma once
#include "passes/codegen/nest/LoopNest.h"

#include <string>

namespace llvm {
class Function;
class Module;
} // namespace llvm

namespace cleave::passes::kernel {

/// Adds the kernel `name` (ABI in Codegen.h) to `module`. Vector operations are explicit; loops are ordinary loops.
llvm::Function *emitKernel(const LoopNest &nest, llvm::Module &module, const std::string &name);

} // namespace cleave::passes::kernel
