// Compiles LLVM modules of kernels to object code, and links objects to one shared object. No MLIR.
#pragma once
#include "passes/codegen/nest/Sizes.h"
#include "runtime/base/Target.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace cleave::passes::kernel {

struct NamedLoopNest {
  std::string symbol;
  const LoopNest *nest;
  bool emulatedThreads = false; ///< a GPU kernel that tests run on the CPU (GpuEmit.h)
  bool batch = false;           ///< a GPU kernel that takes a table of calls
  Sizes sizes = {};             ///< that its code reads (emitKernel)
};

/// Compiles kernels for a CPU to relocatable objects. Each thread needs its own.
class ObjectCompiler {
public:
  explicit ObjectCompiler(Target cpu);
  ~ObjectCompiler();
  ObjectCompiler(const ObjectCompiler &) = delete;
  /// An object's bytes depend only on the kernels.
  std::vector<char> compile(const std::vector<NamedLoopNest> &kernels);
  std::vector<char> assemble(const std::string &text);

private:
  struct Impl;
  std::unique_ptr<Impl> impl;
};

/// A kernel in the usual form that is `code` with these sizes.
struct SizedKernel {
  std::string symbol, code;
  Sizes sizes;
};

/// x86 assembly of the kernels, which only tell `code` its sizes.
std::string assemblyOf(const std::vector<SizedKernel> &kernels);

/// Names all that decides the code of a loop nest for a CPU but the nest and the CPU: the sources of this folder, and
/// LLVM.
const std::string &codeIdentity();

/// Links objects to an ELF shared object. Throws environmentError if temporary files cannot be created.
std::vector<uint8_t> linkShared(const std::vector<std::vector<char>> &objects);

/// The kernels of one module as LLVM IR after optimisation, for people and tests.
std::string irText(const std::vector<NamedLoopNest> &kernels, Target cpu);

} // namespace cleave::passes::kernel
