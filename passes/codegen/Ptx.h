// Kernels for NVIDIA GPUs: PTX through LLVM, cubins through the toolkit's ptxas.
#pragma once
#include "passes/codegen/Object.h"

namespace cleave::passes::kernel {

/// The kernels of one module as PTX for a chip: "sm_80", "sm_90" or "sm_100"; anything else is a userError.
std::string ptxOf(const std::vector<NamedProgram> &kernels, const std::string &chip);

/// What ptxas says of a kernel.
struct KernelResources {
  std::string symbol;
  int registers = 0, sharedBytes = 0, spillBytes = 0;
};

struct Cubin {
  std::vector<uint8_t> bytes;
  std::vector<KernelResources> kernels;
};

/// Where ptxas is: in PATH, or in CUDA_HOME's or /usr/local/cuda's bin; empty where it is nowhere.
std::string findPtxas();

/// Assembles PTX for a chip; kernels that spill more than 32 bytes a thread are assembled again with more registers.
/// Throws environmentError where ptxas is missing or refuses.
Cubin assemble(const std::string &ptx, const std::string &chip);

} // namespace cleave::passes::kernel
