// Kernels for NVIDIA GPUs: PTX through LLVM, cubins through the toolkit's ptxas.
#pragma once
#include "passes/codegen/Object.h"

namespace cleave::passes::kernel {

/// The kernels of one module as PTX for a chip: "sm_80", "sm_90" or "sm_100"; throws a user error otherwise.
std::string ptxOf(const std::vector<NamedProgram> &kernels, const std::string &chip);

/// Resources of a kernel, as reported by ptxas.
struct KernelResources {
  std::string symbol;
  int registers = 0, sharedBytes = 0, spillBytes = 0;
};

struct Cubin {
  std::vector<uint8_t> bytes;
  std::vector<KernelResources> kernels;
};

/// The path of ptxas: in PATH, or in the bin folder of CUDA_HOME or /usr/local/cuda; empty if not found.
std::string findPtxas();

/// Assembles PTX for a chip. Kernels that spill more than 32 bytes per thread are assembled again with more registers.
/// Throws environmentError if ptxas is missing or fails.
Cubin assemble(const std::string &ptx, const std::string &chip);

} // namespace cleave::passes::kernel
