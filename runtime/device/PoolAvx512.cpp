// Compiled for AVX-512.
#define LANES 16
#define PAIRS 1
#define KERNELS poolAvx512
#include "runtime/device/PoolKernels.inc"
