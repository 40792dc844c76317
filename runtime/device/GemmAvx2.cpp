// Compiled for processors with AVX2.
#define LANES 8
#define PAIRS 1
#define VECTORS 2
#define KERNELS gemmAvx2
#include "runtime/device/GemmKernels.inc"
