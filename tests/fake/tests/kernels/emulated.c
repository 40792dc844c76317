// Kernels in the form that code generation emits for emulated threads (passes/codegen/gpu/GpuEmit.h).
#include <stdint.h>

uint32_t cleave_emu_tid(void);
uint32_t cleave_emu_block(void);
uint32_t cleave_emu_blocks(void);
void cleave_emu_barrier(void);
void cleave_emu_warp_barrier(void);
float cleave_emu_shuffle_f32(float x, uint32_t distance);
uint32_t cleave_emu_shuffle_i32(uint32_t x, uint32_t distance);

// out[i] = in[i] + scalar, over blocks of 128 threads
const uint32_t add_map_parameters[2] = {2, 1};
void add_map(void *const *args, const int64_t *scalars, int64_t begin, int64_t end) {
  const float *in = args[0];
  float *out = args[1];
  for (int64_t i = begin + cleave_emu_block() * 128 + cleave_emu_tid(); i < end; i += cleave_emu_blocks() * 128)
    out[i] = in[i] + (float)scalars[0];
}

// out[row] = sum of 1000 elements; a block of 128 threads per row: shuffles, then shared memory
static float shared[4];
const uint32_t sum_rows_parameters[2] = {2, 0};
void sum_rows(void *const *args, const int64_t *scalars, int64_t begin, int64_t end) {
  const uint32_t thread = cleave_emu_tid();
  for (int64_t row = begin + cleave_emu_block(); row < end; row += cleave_emu_blocks()) {
    const float *in = (const float *)args[0] + row * 1000;
    float sum = 0;
    for (int64_t i = thread; i < 1000; i += 128)
      sum += in[i];
    for (uint32_t distance = 16; distance > 0; distance /= 2)
      sum += cleave_emu_shuffle_f32(sum, distance);
    shared[thread / 32] = sum;
    cleave_emu_barrier();
    if (thread == 0)
      ((float *)args[1])[row] = shared[0] + shared[1] + shared[2] + shared[3];
    cleave_emu_barrier();
  }
}

// out[i], i < 32: the lanes' numbers, permuted by exchanges
const uint32_t lanes_rows_parameters[2] = {1, 0};
void lanes_rows(void *const *args, const int64_t *scalars, int64_t begin, int64_t end) {
  uint32_t word = cleave_emu_tid();
  for (uint32_t distance = 1; distance < 32; distance *= 2)
    word = cleave_emu_shuffle_i32(word, distance);
  cleave_emu_warp_barrier();
  ((uint32_t *)args[0])[cleave_emu_tid()] = word;
}

// One thread skips the barrier.
const uint32_t early_rows_parameters[2] = {0, 0};
void early_rows(void *const *args, const int64_t *scalars, int64_t begin, int64_t end) {
  if (cleave_emu_tid() != 5)
    cleave_emu_barrier();
}
const uint32_t mixed_rows_parameters[2] = {0, 0};
void mixed_rows(void *const *args, const int64_t *scalars, int64_t begin, int64_t end) {
  if (cleave_emu_tid() == 5)
    cleave_emu_barrier();
  else
    cleave_emu_warp_barrier();
}
