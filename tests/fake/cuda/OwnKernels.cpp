// The runtime's own kernels, compiled for the host: the contents of the module for their fat binary.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "tests/fake/cuda/HostKernels.h"

#define CLEAVE_KERNEL(name, arguments, call)                                                                           \
  void name(arguments a) { call(a); }                                                                                  \
  CLEAVE_HOST_KERNEL(name)
#include "runtime/cuda/kernels/Kernels.cu"
