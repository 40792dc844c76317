// Emulated kernels: thread intrinsics, and barriers for kernels that reduce rows.
#include "tests/fake/cuda/Fiber.h"
#include "tests/fake/cuda/Module.h"

#include <bit>
#include <cstdio>

namespace cleave::fake {

namespace {

struct Place {
  uint32_t thread, block, blocks;
};
__attribute__((tls_model("initial-exec"))) thread_local Place place{};

using Kernel = void (*)(void *const *, const int64_t *, int64_t, int64_t);

/// The number of the block that runs as the `i`th; shuffle mode starts at another block.
uint32_t nth(uint32_t i, uint32_t blocks, uint32_t first) { return (i + first) % blocks; }

FiberBlock *blockOfCaller(const char *what) {
  FiberBlock *block = FiberBlock::running();
  if (!block) {
    std::fprintf(stderr, "fake CUDA: %s in a kernel whose name has no _rows: its threads run one by one\n", what);
    std::abort();
  }
  return block;
}

} // namespace

CUresult runEmulated(const CUfunc_st &function, const Shape &shape, void *const *buffers, const int64_t *scalars,
                     int64_t extent) {
  const auto kernel = reinterpret_cast<Kernel>(function.entry);
  const bool together =
      function.name.find("_rows") != std::string::npos || function.name.find("_columns") != std::string::npos;
  const uint32_t first = world().settings.shuffle ? static_cast<uint32_t>(randomNumber(shape.grid[0])) : 0;
  place.blocks = shape.grid[0];
  std::unique_lock<std::mutex> shared(*function.shared, std::defer_lock);
  if (together)
    shared.lock();
  FiberBlock fibers;
  const std::function<void(unsigned)> body = [&](unsigned) { kernel(buffers, scalars, 0, extent); };
  for (uint32_t i = 0; i < shape.grid[0]; ++i) {
    place.block = nth(i, shape.grid[0], first);
    if (together) {
      if (!fibers.run(shape.block[0], body)) {
        std::fprintf(stderr, "fake CUDA: %s: block %u: %s\n", function.name.c_str(), place.block, fibers.why);
        return CUDA_ERROR_LAUNCH_FAILED;
      }
      continue;
    }
    for (place.thread = 0; place.thread < shape.block[0]; ++place.thread)
      kernel(buffers, scalars, 0, extent);
  }
  return CUDA_SUCCESS;
}

} // namespace cleave::fake

using namespace cleave::fake;

CLEAVE_FAKE_EXPORT uint32_t cleave_emu_tid() {
  const FiberBlock *block = FiberBlock::running();
  return block ? block->current : place.thread;
}
CLEAVE_FAKE_EXPORT uint32_t cleave_emu_block() { return place.block; }
CLEAVE_FAKE_EXPORT uint32_t cleave_emu_blocks() { return place.blocks; }
CLEAVE_FAKE_EXPORT void cleave_emu_barrier() { blockOfCaller("barrier")->barrier(); }
CLEAVE_FAKE_EXPORT void cleave_emu_warp_barrier() { blockOfCaller("warp barrier")->warpBarrier(); }
CLEAVE_FAKE_EXPORT uint32_t cleave_emu_shuffle_i32(uint32_t x, uint32_t distance) {
  FiberBlock *block = blockOfCaller("shuffle");
  return block->exchange(x, (block->current ^ distance) % 32);
}
CLEAVE_FAKE_EXPORT float cleave_emu_shuffle_f32(float x, uint32_t distance) {
  return std::bit_cast<float>(cleave_emu_shuffle_i32(std::bit_cast<uint32_t>(x), distance));
}

// ---- host kernels (HostKernels.h) ----------------------------------------------------------------------------------

CLEAVE_FAKE_EXPORT int cleaveFakeRunBlock(unsigned threads, void (*body)(void *, unsigned), void *data) {
  FiberBlock fibers;
  const bool good = fibers.run(threads, [&](unsigned thread) { body(data, thread); });
  if (!good)
    std::fprintf(stderr, "fake CUDA: a host kernel: %s\n", fibers.why);
  return good ? 0 : CUDA_ERROR_LAUNCH_FAILED;
}
CLEAVE_FAKE_EXPORT unsigned cleaveFakeThread() {
  const FiberBlock *block = FiberBlock::running();
  return block ? block->current : 0;
}
CLEAVE_FAKE_EXPORT void cleaveFakeBarrier() { blockOfCaller("__syncthreads")->barrier(); }
CLEAVE_FAKE_EXPORT void cleaveFakeWarpBarrier() { blockOfCaller("__syncwarp")->warpBarrier(); }
CLEAVE_FAKE_EXPORT uint32_t cleaveFakeExchange(uint32_t word, unsigned lane) {
  return blockOfCaller("a shuffle")->exchange(word, lane);
}
