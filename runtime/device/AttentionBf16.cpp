// Compiled for AVX-512 with products of bf16 pairs.
#define LANES 16
#define ROWS 12
#define PAIRS 2
#define KERNELS attentionBf16
#include "runtime/device/AttentionKernels.inc"
