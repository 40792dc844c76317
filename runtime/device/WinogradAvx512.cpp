// Compiled for AVX-512.
#define LANES 16
#define ROWS 12
#define PAIRS 1
#define KERNELS winogradAvx512
#include "runtime/device/WinogradKernels.inc"
