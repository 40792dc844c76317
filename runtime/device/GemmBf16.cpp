// Compiled for AVX-512 with products of bf16 pairs.
#define LANES 16
#define PAIRS 2
#define VECTORS 4
#define KERNELS gemmBf16
#include "runtime/device/GemmKernels.inc"
