// Compiled for AVX2 with FMA.
#define LANES 8
#define ROWS 6
#define PAIRS 1
#define KERNELS attentionAvx2
#include "runtime/device/AttentionKernels.inc"
