// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3, SC 2011): random numbers by
// index, independent of which rank draws them and in which order.
//
// Element i of stream s under a 64-bit key: word i % 4 of the block with counter {lo(i/4), hi(i/4), lo(s), hi(s)}.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace cleave {

using PhiloxBlock = std::array<uint32_t, 4>;

/// The four words of one counter.
inline PhiloxBlock philox(PhiloxBlock counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    uint64_t p0 = uint64_t{0xD2511F53} * counter[0], p1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(p0)};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

/// Block `index` (elements 4 * index ... 4 * index + 3) of a stream.
inline PhiloxBlock philoxBlock(uint64_t key, uint64_t stream, uint64_t index) {
  return philox({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), static_cast<uint32_t>(stream),
                 static_cast<uint32_t>(stream >> 32)},
                static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32));
}

/// Converts a word to a number in [0, 1), a multiple of 2^-24.
inline float philoxUnit(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

/// Uniform in [0, 1): element `index` of `stream`.
inline float philoxUniform(uint64_t key, uint64_t stream, uint64_t index) {
  return philoxUnit(philoxBlock(key, stream, index / 4)[index % 4]);
}

/// Standard normal: Box-Muller of elements 2 * index and 2 * index + 1 of `stream`, in double:
/// sqrt(-2 ln(1 - u0)) cos(2 pi u1).
inline double philoxNormal(uint64_t key, uint64_t stream, uint64_t index) {
  PhiloxBlock block = philoxBlock(key, stream, index / 2);
  double u0 = philoxUnit(block[index % 2 * 2]), u1 = philoxUnit(block[index % 2 * 2 + 1]);
  return std::sqrt(-2 * std::log(1 - u0)) * std::cos(2 * 3.14159265358979323846 * u1);
}

/// FNV-1a, 64 bits: hashes names to keys.
constexpr uint64_t fnv1a64(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (char c : text)
    hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

/// Writes elements first, first + 1, ... of a stream to out[0 .. count), uniform in [0, 1).
void philoxFill(float *out, uint64_t key, uint64_t stream, uint64_t first, int64_t count);

/// Writes standard normals first, first + 1, ... of a stream: philoxNormal() within a few units in the last place of
/// double, and the same bits for a number in every run and on every processor.
void philoxFillNormal(double *out, uint64_t key, uint64_t stream, uint64_t first, int64_t count);

} // namespace cleave
