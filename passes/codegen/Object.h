// Compiles LLVM modules of kernels to object code, and links objects to one shared object. No MLIR.
#pragma once
#include "passes/codegen/nest/LoopNest.h"
#include "runtime/base/Target.h"

#include <cstdint>
#include <string>
#include <vector>

namespace cleave::passes::kernel {

struct NamedLoopNest {
  std::string symbol;
  const LoopNest *nest;
  bool emulatedThreads = false; ///< a GPU kernel that tests run on the CPU (GpuEmit.h)
  bool batch = false;           ///< a GPU kernel that takes a table of calls
};

/// Compiles the kernels for a CPU to one relocatable object. Safe on several threads at once.
std::vector<char> compileObject(const std::vector<NamedLoopNest> &kernels, Target cpu);

/// Names all that decides the code of a loop nest for a CPU but the nest and the CPU: the sources of this folder, and
/// LLVM.
const std::string &codeIdentity();

/// Links objects to an ELF shared object. Throws environmentError if temporary files cannot be created.
std::vector<uint8_t> linkShared(const std::vector<std::vector<char>> &objects);

/// The kernels of one module as LLVM IR after optimisation, for people and tests.
std::string irText(const std::vector<NamedLoopNest> &kernels, Target cpu);

} // namespace cleave::passes::kernel
