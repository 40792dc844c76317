// The fatbin of Kernels.cu is embedded in this program.
#include "runtime/cuda/kernels/OwnKernels.h"

#include "runtime/base/Error.h"
#include "runtime/plan/plan_generated.h"

#include <fmt/format.h>

#include <algorithm>

// CLEAVE_KERNEL_IMAGE: the file that nvcc compiled from Kernels.cu.
asm(".section .rodata\n"
    ".balign 64\n"
    "cleaveKernelImage:\n"
    ".incbin \"" CLEAVE_KERNEL_IMAGE "\"\n"
    ".byte 0\n"
    ".previous\n");
extern "C" const char cleaveKernelImage[];

namespace cleave::cuda {

OwnKernels::OwnKernels() : module(cleaveKernelImage, "the runtime's own kernels") {}

CUfunction OwnKernels::function(const std::string &name) {
  auto [found, fresh] = functions.try_emplace(name);
  if (fresh)
    found->second = module.function(name);
  return found->second;
}

void OwnKernels::launch(CUfunction function, CUstream stream, int64_t blocks, unsigned threads, void **parameters) {
  if (blocks <= 0)
    return;
  const auto grid = static_cast<unsigned>(std::min<int64_t>(blocks, 1 << 20)); // grid-stride loops process the rest
  check(driver().launchKernel(function, grid, 1, 1, threads, 1, 1, 0, stream, parameters, nullptr), "cuLaunchKernel");
}

std::string elementSuffix(plan::DType dtype) {
  switch (dtype) {
  case plan::DType::F32:
    return "f32";
  case plan::DType::F16:
    return "f16";
  case plan::DType::BF16:
    return "bf16";
  default:
    throw environmentError(fmt::format("cuda: no kernel for elements of type {}", plan::EnumNameDType(dtype)));
  }
}

} // namespace cleave::cuda
