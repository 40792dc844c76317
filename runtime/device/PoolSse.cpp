// Compiled for every x86-64 processor.
#define LANES 4
#define PAIRS 1
#define KERNELS poolSse
#include "runtime/device/PoolKernels.inc"
