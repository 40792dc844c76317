// Compiled for processors with AVX-512.
#define LANES 16
#define PAIRS 1
#define VECTORS 4
#define KERNELS gemmAvx512
#include "runtime/device/GemmKernels.inc"
