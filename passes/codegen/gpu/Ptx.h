// Kernels for NVIDIA GPUs: PTX through LLVM, cubins through the toolkit's ptxas.
#pragma once
#include "passes/codegen/Object.h"

namespace cleave::passes::kernel {

/// The kernels of one module as PTX for a GPU, not the emulated one.
std::string ptxOf(const std::vector<NamedLoopNest> &kernels, Target chip);

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

/// Assembles PTX for GPUs of type `chip`; kernels that spill more than 32 bytes per thread are assembled again with
/// more registers. Throws environmentError if ptxas is missing or fails.
Cubin assemble(const std::string &ptx, Target chip);

} // namespace cleave::passes::kernel
