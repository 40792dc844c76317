// Compiled for AVX2 with FMA.
#define LANES 8
#define PAIRS 1
#define KERNELS depthwiseAvx2
#include "runtime/device/DepthwiseKernels.inc"
