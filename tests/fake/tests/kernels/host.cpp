// Kernels written for CUDA, compiled for the host.
#include "tests/fake/cuda/HostKernels.h"

extern "C" __global__ void scaleBy(float *data, float factor, long long count) {
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count)
    data[i] *= factor;
}

template <typename T> __global__ void countInto(T *total, const T *data, int count) {
  for (int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); i < count;
       i += static_cast<int>(gridDim.x * blockDim.x))
    atomicAdd(total, data[i]);
}

extern "C" __global__ void __launch_bounds__(64) sumBlock(float *out, const float *in) {
  __shared__ float parts[2];
  float sum = in[blockIdx.x * blockDim.x * blockDim.y + threadIdx.y * blockDim.x + threadIdx.x];
  for (int distance = 16; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
  if (thread % warpSize == 0)
    parts[thread / warpSize] = sum;
  __syncthreads();
  if (thread == 0)
    out[blockIdx.x] = parts[0] + parts[1];
  __syncthreads();
}

extern "C" __global__ void nothing() {}

CLEAVE_HOST_KERNEL(scaleBy)
CLEAVE_HOST_KERNEL_AS(countIntoI32, countInto<int>)
CLEAVE_HOST_KERNEL_TOGETHER(sumBlock)
CLEAVE_HOST_KERNEL(nothing)
