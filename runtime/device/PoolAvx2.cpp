// Compiled for AVX2.
#define LANES 8
#define PAIRS 1
#define KERNELS poolAvx2
#include "runtime/device/PoolKernels.inc"
