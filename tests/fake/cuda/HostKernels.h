// Runs the runtime's own CUDA kernels on the host. A file that includes this header before the kernels' source,
//
//   #include "tests/fake/cuda/HostKernels.h"
//   #include "runtime/cuda/kernels/copyStrided.cu"
//   CLEAVE_HOST_KERNEL(copyStrided)            // an extern "C" function, or one that is not overloaded
//   CLEAVE_HOST_KERNEL_TOGETHER(sumRows)       // uses __syncthreads, __syncwarp or shuffles; 32 threads per warp
//   CLEAVE_HOST_KERNEL_AS(fillF32, fill<float>)
//
// defines cleave_host_kernel_NAME. The fake driver looks these functions up when a module is a fat binary. Threads of a
// block take turns on one host thread and blocks run one after another, so atomics are plain operations. In kernels
// that are not TOGETHER, a thread runs to its end before the next one begins. A __shared__ variable is one object per
// host thread.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

extern "C" {
int cleaveFakeRunBlock(unsigned threads, void (*body)(void *, unsigned), void *data);
unsigned cleaveFakeThread();
void cleaveFakeBarrier();
void cleaveFakeWarpBarrier();
uint32_t cleaveFakeExchange(uint32_t word, unsigned lane);
}

namespace cleave::fake {

struct Index {
  unsigned x = 0, y = 0, z = 0;
};
inline thread_local Index threadIndex, blockIndex, blockExtent, gridExtent;
inline thread_local bool threadsTogether = false;

inline Index unpackIndex(unsigned i) {
  return {i % blockExtent.x, i / blockExtent.x % blockExtent.y, i / blockExtent.x / blockExtent.y};
}
/// Fibers share a host thread, so the current index is looked up at every use.
inline Index whichThread() { return threadsTogether ? unpackIndex(cleaveFakeThread()) : threadIndex; }

template <size_t N> struct ParameterSizes { uint32_t count, bytes[N + 1]; };

template <typename F> struct HostKernel;
template <typename... A> struct HostKernel<void (*)(A...)> {
  using Sizes = ParameterSizes<sizeof...(A)>;
  static constexpr Sizes sizes{sizeof...(A), {sizeof(A)..., 0}};

  struct Launch {
    void (*kernel)(A...);
    void **parameters;
    template <size_t... I> void one(std::index_sequence<I...>) { kernel(*static_cast<A *>(parameters[I])...); }
    static void thread(void *self, unsigned) { static_cast<Launch *>(self)->one(std::index_sequence_for<A...>()); }
  };

  static int run(void (*kernel)(A...), void **parameters, const unsigned *grid, const unsigned *block, bool together) {
    Launch launch{kernel, parameters};
    gridExtent = {grid[0], grid[1], grid[2]};
    blockExtent = {block[0], block[1], block[2]};
    threadsTogether = together;
    const unsigned threads = block[0] * block[1] * block[2];
    int result = 0;
    for (unsigned z = 0; z < grid[2]; ++z)
      for (unsigned y = 0; y < grid[1]; ++y)
        for (unsigned x = 0; x < grid[0] && result == 0; ++x) {
          blockIndex = {x, y, z};
          if (together) {
            result = cleaveFakeRunBlock(threads, &Launch::thread, &launch);
            continue;
          }
          for (unsigned t = 0; t < threads; ++t) {
            threadIndex = unpackIndex(t);
            Launch::thread(&launch, t);
          }
        }
    threadsTogether = false;
    return result;
  }
};

template <typename T> T exchangeLanes(T value, unsigned lane) {
  uint32_t words[(sizeof(T) + 3) / 4] = {};
  std::memcpy(words, &value, sizeof value);
  for (uint32_t &word : words)
    word = cleaveFakeExchange(word, lane);
  std::memcpy(&value, words, sizeof value);
  return value;
}
inline unsigned laneOf() { return cleaveFakeThread() % 32; }

template <typename T, typename F> T changed(T *at, F change) {
  const T old = *at;
  *at = change(old);
  return old;
}

} // namespace cleave::fake

#define CLEAVE_HOST_KERNEL_ENTRY(name, together, ...)                                                                  \
  extern "C" __attribute__((visibility("default"))) int cleave_host_kernel_##name(                                     \
      void **parameters, const unsigned *grid, const unsigned *block) {                                                \
    return ::cleave::fake::HostKernel<decltype(&__VA_ARGS__)>::run(&__VA_ARGS__, parameters, grid, block, together);   \
  }                                                                                                                    \
  extern "C" __attribute__((visibility("default"), used))                                                              \
  const ::cleave::fake::HostKernel<decltype(&__VA_ARGS__)>::Sizes cleave_host_kernel_##name##_parameters =             \
      ::cleave::fake::HostKernel<decltype(&__VA_ARGS__)>::sizes;

#define CLEAVE_HOST_KERNEL_AS(name, ...) CLEAVE_HOST_KERNEL_ENTRY(name, false, __VA_ARGS__)
#define CLEAVE_HOST_KERNEL_TOGETHER_AS(name, ...) CLEAVE_HOST_KERNEL_ENTRY(name, true, __VA_ARGS__)
#define CLEAVE_HOST_KERNEL(name) CLEAVE_HOST_KERNEL_AS(name, name)
#define CLEAVE_HOST_KERNEL_TOGETHER(name) CLEAVE_HOST_KERNEL_TOGETHER_AS(name, name)

// ---- CUDA's keywords ------------------------------------------------------------------------------------------------

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __constant__
#undef __launch_bounds__
#undef __forceinline__
#define __global__
#define __device__
#define __host__
#define __shared__ static thread_local
#define __constant__ const
#define __launch_bounds__(...)
#define __forceinline__ inline
#define threadIdx (::cleave::fake::whichThread())
#define blockIdx (::cleave::fake::blockIndex)
#define blockDim (::cleave::fake::blockExtent)
#define gridDim (::cleave::fake::gridExtent)
#define warpSize 32

inline void __syncthreads() { cleaveFakeBarrier(); }
inline void __syncwarp(unsigned = 0xffffffffu) { cleaveFakeWarpBarrier(); }
inline void __threadfence() {}
template <typename T> T __shfl_sync(unsigned, T x, int lane, int = 32) {
  return ::cleave::fake::exchangeLanes(x, static_cast<unsigned>(lane) % 32);
}
template <typename T> T __shfl_xor_sync(unsigned, T x, int distance, int = 32) {
  return ::cleave::fake::exchangeLanes(x, ::cleave::fake::laneOf() ^ static_cast<unsigned>(distance));
}
template <typename T> T __shfl_down_sync(unsigned, T x, unsigned distance, int = 32) {
  const unsigned lane = ::cleave::fake::laneOf();
  const T other = ::cleave::fake::exchangeLanes(x, (lane + distance) % 32);
  return lane + distance < 32 ? other : x;
}
template <typename T> T __shfl_up_sync(unsigned, T x, unsigned distance, int = 32) {
  const unsigned lane = ::cleave::fake::laneOf();
  const T other = ::cleave::fake::exchangeLanes(x, (lane - distance) % 32);
  return lane >= distance ? other : x;
}
template <typename T> T __ldg(const T *at) { return *at; }

template <typename T, typename U> T atomicAdd(T *at, U by) {
  return ::cleave::fake::changed(at, [&](T x) { return static_cast<T>(x + by); });
}
template <typename T, typename U> T atomicMax(T *at, U with) {
  return ::cleave::fake::changed(at, [&](T x) { return std::max(x, static_cast<T>(with)); });
}
template <typename T, typename U> T atomicMin(T *at, U with) {
  return ::cleave::fake::changed(at, [&](T x) { return std::min(x, static_cast<T>(with)); });
}
template <typename T, typename U> T atomicOr(T *at, U with) {
  return ::cleave::fake::changed(at, [&](T x) { return static_cast<T>(x | with); });
}
template <typename T, typename U> T atomicExch(T *at, U with) {
  return ::cleave::fake::changed(at, [&](T) { return static_cast<T>(with); });
}
template <typename T, typename U, typename V> T atomicCAS(T *at, U expected, V with) {
  return ::cleave::fake::changed(at, [&](T x) { return x == static_cast<T>(expected) ? static_cast<T>(with) : x; });
}
