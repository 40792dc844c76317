// LLVM modules of kernels to object code, and objects to one shared object. No MLIR.
#pragma once
#include "passes/codegen/Program.h"

#include <cstdint>
#include <string>
#include <vector>

namespace cleave::passes::kernel {

struct NamedProgram {
  std::string symbol;
  const Program *program;
  bool emulatedThreads = false; ///< a GPU's kernel for a test to run on the CPU (GpuEmit.h)
  bool batch = false;           ///< a GPU's kernel that takes a table of calls
};

/// Compiles the kernels for a CPU ("x86-64-v4", ...) to one relocatable object. Safe on several threads at once.
std::vector<char> compileObject(const std::vector<NamedProgram> &kernels, const std::string &cpu);

/// Links objects to an ELF shared object. Throws environmentError where temporary files cannot be made.
std::vector<uint8_t> linkShared(const std::vector<std::vector<char>> &objects);

/// The kernels of one module as LLVM IR after optimisation, for people and tests.
std::string irText(const std::vector<NamedProgram> &kernels, const std::string &cpu);

} // namespace cleave::passes::kernel
