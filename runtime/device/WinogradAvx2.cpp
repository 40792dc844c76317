// Compiled for AVX2 with FMA.
#define LANES 8
#define ROWS 6
#define PAIRS 1
#define KERNELS winogradAvx2
#include "runtime/device/WinogradKernels.inc"
