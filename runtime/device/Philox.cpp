// Generates runs of Philox numbers. The rounds process many counters at once, so that the compiler vectorises them. The
// vector width is chosen at run time; all variants give the same words.
#include "runtime/device/Philox.h"

namespace cleave {

namespace {

constexpr int lanes = 16;

/// Sixteen consecutive blocks, 64 elements.
[[gnu::always_inline]] inline void fillBlocks(float *out, uint64_t key, uint64_t stream, uint64_t firstBlock) {
  uint32_t c0[lanes], c1[lanes], c2[lanes], c3[lanes];
  for (int i = 0; i < lanes; ++i) {
    uint64_t block = firstBlock + static_cast<uint64_t>(i);
    c0[i] = static_cast<uint32_t>(block);
    c1[i] = static_cast<uint32_t>(block >> 32);
    c2[i] = static_cast<uint32_t>(stream);
    c3[i] = static_cast<uint32_t>(stream >> 32);
  }
  uint32_t key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < lanes; ++i) {
      uint64_t p0 = uint64_t{0xD2511F53} * c0[i], p1 = uint64_t{0xCD9E8D57} * c2[i];
      uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1[i] ^ key0, n2 = static_cast<uint32_t>(p0 >> 32) ^ c3[i] ^ key1;
      c1[i] = static_cast<uint32_t>(p1);
      c3[i] = static_cast<uint32_t>(p0);
      c0[i] = n0;
      c2[i] = n2;
    }
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  for (int i = 0; i < lanes; ++i) {
    float *const four = out + ptrdiff_t{4} * i;
    four[0] = philoxUnit(c0[i]);
    four[1] = philoxUnit(c1[i]);
    four[2] = philoxUnit(c2[i]);
    four[3] = philoxUnit(c3[i]);
  }
}

[[gnu::always_inline]] inline void fillGroups(float *out, uint64_t key, uint64_t stream, uint64_t firstBlock,
                                              int64_t groups) {
  for (int64_t g = 0; g < groups; ++g)
    fillBlocks(out + g * 4 * lanes, key, stream, firstBlock + static_cast<uint64_t>(g) * lanes);
}

using Fill = void(float *, uint64_t key, uint64_t stream, uint64_t firstBlock, int64_t groups);

void fillPlain(float *out, uint64_t key, uint64_t stream, uint64_t firstBlock, int64_t groups) {
  fillGroups(out, key, stream, firstBlock, groups);
}

[[gnu::target("avx2")]] void fillAvx2(float *out, uint64_t key, uint64_t stream, uint64_t firstBlock, int64_t groups) {
  fillGroups(out, key, stream, firstBlock, groups);
}

[[gnu::target("avx512f,avx512dq,avx512vl")]] void fillAvx512(float *out, uint64_t key, uint64_t stream,
                                                             uint64_t firstBlock, int64_t groups) {
  fillGroups(out, key, stream, firstBlock, groups);
}

Fill *fastestFill() {
  if (__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return fillAvx512;
  return __builtin_cpu_supports("avx2") ? fillAvx2 : fillPlain;
}

} // namespace

void philoxFill(float *out, uint64_t key, uint64_t stream, uint64_t first, int64_t count) {
  static Fill *const fill = fastestFill();
  for (; count > 0 && first % 4 != 0; --count)
    *out++ = philoxUniform(key, stream, first++);
  int64_t groups = count / (4 * lanes);
  fill(out, key, stream, first / 4, groups);
  int64_t done = groups * 4 * lanes;
  for (int64_t i = done; i < count;) {
    PhiloxBlock block = philoxBlock(key, stream, (first + static_cast<uint64_t>(i)) / 4);
    for (int lane = 0; lane < 4 && i < count; ++lane)
      out[i++] = philoxUnit(block[lane]);
  }
}

} // namespace cleave
