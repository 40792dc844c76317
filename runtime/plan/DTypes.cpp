// Element types: sizes, names, conversions.
#include "runtime/plan/DTypes.h"

#include "runtime/plan/plan_generated.h"

#include <cassert>
#include <cmath>

namespace cleave {

using plan::DType;

size_t dtypeSize(DType type) {
  switch (type) {
  case DType::F32:
  case DType::I32:
    return 4;
  case DType::F16:
  case DType::BF16:
    return 2;
  case DType::I64:
    return 8;
  case DType::I1:
    return 1;
  }
  return 0;
}

const char *dtypeName(DType type) {
  static constexpr const char *names[] = {"f32", "f16", "bf16", "i32", "i64", "i1"};
  return type <= DType::MAX ? names[static_cast<size_t>(type)] : "unknown";
}

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

double loadElement(const void *data, int64_t index, DType type) {
  switch (type) {
  case DType::F32:
    return static_cast<const float *>(data)[index];
  case DType::F16:
    return f16ToFloat(static_cast<const uint16_t *>(data)[index]);
  case DType::BF16:
    return bf16ToFloat(static_cast<const uint16_t *>(data)[index]);
  case DType::I32:
    return static_cast<const int32_t *>(data)[index];
  case DType::I64:
    return static_cast<double>(static_cast<const int64_t *>(data)[index]);
  case DType::I1:
    return static_cast<const uint8_t *>(data)[index];
  }
  assert(false && "unknown element type");
  return 0;
}

void storeElement(void *data, int64_t index, DType type, double value) {
  switch (type) {
  case DType::F32:
    static_cast<float *>(data)[index] = static_cast<float>(value);
    return;
  case DType::F16:
    static_cast<uint16_t *>(data)[index] = floatToF16(static_cast<float>(value));
    return;
  case DType::BF16:
    static_cast<uint16_t *>(data)[index] = floatToBf16(static_cast<float>(value));
    return;
  case DType::I32:
    static_cast<int32_t *>(data)[index] = static_cast<int32_t>(value);
    return;
  case DType::I64:
    static_cast<int64_t *>(data)[index] = static_cast<int64_t>(value);
    return;
  case DType::I1:
    static_cast<uint8_t *>(data)[index] = value != 0;
    return;
  }
  assert(false && "unknown element type");
}

} // namespace cleave
