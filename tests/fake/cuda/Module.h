// Kernels: emulated ones in an ELF object, and the runtime's own, compiled for the host (HostKernels.h).
#pragma once
#include "tests/fake/cuda/Stream.h"

struct CUfunc_st {
  CUmodule module = nullptr;
  std::string name;
  void *entry = nullptr;
  bool host = false;                                                   ///< compiled with HostKernels.h
  std::vector<size_t> sizes;                                           ///< of the parameters
  uint32_t buffers = 0;                                                ///< emulated kernels: number of parameters that
                                                                       ///< are buffers
  std::shared_ptr<std::mutex> shared = std::make_shared<std::mutex>(); ///< an emulated kernel has only one shared
                                                                       ///< memory
};

struct CUmod_st {
  CUcontext context = nullptr;
  bool host = false;
  std::shared_ptr<void> library; ///< closed when no launch needs it
  std::map<std::string, std::unique_ptr<CUfunc_st>> functions;
};

namespace cleave::fake {

struct Shape {
  unsigned grid[3], block[3];
};

/// Runs an emulated kernel: once for every thread of every block.
CUresult runEmulated(const CUfunc_st &function, const Shape &shape, void *const *buffers, const int64_t *scalars,
                     int64_t extent);

} // namespace cleave::fake
