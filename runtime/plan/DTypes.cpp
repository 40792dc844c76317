// Conversions of elements.
#include "runtime/plan/DTypes.h"

#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>

namespace cleave {

static_assert(planned(DType::F32) == plan::DType::F32 && planned(DType::F16) == plan::DType::F16 &&
              planned(DType::BF16) == plan::DType::BF16 && planned(DType::I32) == plan::DType::I32 &&
              planned(DType::I64) == plan::DType::I64 && planned(DType::I1) == plan::DType::I1 &&
              planned(DType::U8) == plan::DType::U8 && plan::DType::MAX == plan::DType::U8);

float f16ToFloat(uint16_t bits) {
  uint32_t sign = uint32_t{bits & 0x8000u} << 16, exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  if (exponent == 31)
    return std::bit_cast<float>(sign | 0x7f800000 | mantissa << 13);
  if (exponent)
    return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  float value = static_cast<float>(mantissa) * 0x1p-24f;
  return sign ? -value : value;
}

uint16_t floatToF16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  bits &= 0x7fffffff;
  if (bits >= 0x7f800000)
    return sign | 0x7c00 | (bits > 0x7f800000 ? 0x200 : 0);
  if (bits >= 0x477ff000) // rounds to 65536
    return sign | 0x7c00;
  if (bits < 0x38800000) // subnormal: adding a float rounds to multiples of 2^-24
    return sign | static_cast<uint16_t>(std::bit_cast<uint32_t>(std::bit_cast<float>(bits) + 0.5f) - 0x3f000000);
  uint32_t rounded = bits + 0xfff + ((bits >> 13) & 1);
  return sign | static_cast<uint16_t>((rounded - 0x38000000) >> 13);
}

double loadElement(const void *data, int64_t index, plan::DType type) {
  switch (type) {
  case plan::DType::F32:
    return static_cast<const float *>(data)[index];
  case plan::DType::F16:
    return f16ToFloat(static_cast<const uint16_t *>(data)[index]);
  case plan::DType::BF16:
    return bf16ToFloat(static_cast<const uint16_t *>(data)[index]);
  case plan::DType::I32:
    return static_cast<const int32_t *>(data)[index];
  case plan::DType::I64:
    return static_cast<double>(static_cast<const int64_t *>(data)[index]);
  case plan::DType::I1:
  case plan::DType::U8:
    return static_cast<const uint8_t *>(data)[index];
  }
  assert(false && "unknown element type");
  return 0;
}

/// A float for another rounding to fewer digits, so that both together round once: what is not exact gets an odd last
/// bit (Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums", 2008).
static float roundedToOdd(double value) {
  const auto nearest = static_cast<float>(value);
  if (nearest == value || !std::isfinite(nearest))
    return nearest;
  const uint32_t bits = std::bit_cast<uint32_t>(nearest) - (std::abs(nearest) > std::abs(value));
  return std::bit_cast<float>(bits | 1);
}

void storeElement(void *data, int64_t index, plan::DType type, double value) {
  switch (type) {
  case plan::DType::F32:
    static_cast<float *>(data)[index] = static_cast<float>(value);
    return;
  case plan::DType::F16:
    static_cast<uint16_t *>(data)[index] = floatToF16(roundedToOdd(value));
    return;
  case plan::DType::BF16:
    static_cast<uint16_t *>(data)[index] = floatToBf16(roundedToOdd(value));
    return;
  case plan::DType::I32:
    static_cast<int32_t *>(data)[index] = static_cast<int32_t>(value);
    return;
  case plan::DType::I64:
    static_cast<int64_t *>(data)[index] = static_cast<int64_t>(value);
    return;
  case plan::DType::I1:
    static_cast<uint8_t *>(data)[index] = value != 0;
    return;
  case plan::DType::U8:
    static_cast<uint8_t *>(data)[index] = static_cast<uint8_t>(static_cast<int32_t>(value));
    return;
  }
  assert(false && "unknown element type");
}

/// Whether no element has all bits of `exponent` set, as NaN and infinity have.
template <typename Bits> static bool allFinite(std::span<const std::byte> data, Bits exponent) {
  constexpr size_t chunk = 4096; // without a branch per element, so that the loop is vectorised
  const size_t count = data.size() / sizeof(Bits);
  for (size_t begin = 0; begin < count; begin += chunk) {
    bool found = false;
    for (size_t i = begin; i < std::min(count, begin + chunk); ++i) {
      Bits bits;
      std::memcpy(&bits, data.data() + i * sizeof bits, sizeof bits);
      found |= (bits & exponent) == exponent;
    }
    if (found)
      return false;
  }
  return true;
}

bool allFinite(std::span<const std::byte> data, plan::DType type) {
  switch (type) {
  case plan::DType::F32:
    return allFinite<uint32_t>(data, 0x7f800000);
  case plan::DType::BF16:
    return allFinite<uint16_t>(data, 0x7f80);
  case plan::DType::F16:
    return allFinite<uint16_t>(data, 0x7c00);
  default:
    return true;
  }
}

} // namespace cleave
