// 16-bit floating-point numbers for the fake libraries.
#pragma once
#include <bit>
#include <cstdint>

namespace cleave::fake {

inline float fromHalf(uint16_t bits) { return static_cast<float>(std::bit_cast<_Float16>(bits)); }
inline uint16_t toHalf(float x) { return std::bit_cast<uint16_t>(static_cast<_Float16>(x)); }

inline float fromBrain(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
inline uint16_t toBrain(float x) {
  const auto word = std::bit_cast<uint32_t>(x);
  if ((word & 0x7fffffff) > 0x7f800000) // NaN stays NaN
    return static_cast<uint16_t>(word >> 16 | 0x40);
  return static_cast<uint16_t>((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

/// Rounds to 10 bits of mantissa, halves away from zero, as tensor cores read an f32.
inline float roundToTf32(float x) {
  const auto word = std::bit_cast<uint32_t>(x);
  if ((word & 0x7f800000) == 0x7f800000)
    return x;
  return std::bit_cast<float>((word + 0x1000) & 0xffffe000);
}

} // namespace cleave::fake
