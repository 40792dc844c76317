// Element types in plans, and conversions between float and the 16-bit formats (round to nearest even).
#pragma once
#include "runtime/base/DType.h"
#include "runtime/plan/PlanTypes.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace cleave {

/// Plans number element types as cleave::DType does.
constexpr plan::DType planned(DType type) { return static_cast<plan::DType>(type); }
constexpr size_t dtypeSize(plan::DType type) { return static_cast<size_t>(dtypeSize(static_cast<DType>(type))); }
constexpr const char *dtypeName(plan::DType type) { return dtypeName(static_cast<DType>(type)); }

inline float bf16ToFloat(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
inline uint16_t floatToBf16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000)
    return static_cast<uint16_t>((bits >> 16) | 0x40); // NaN stays NaN
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
float f16ToFloat(uint16_t bits);
uint16_t floatToF16(float value);

/// Reads element `index` of an array of `type` as a double, or writes it (rounded; integers truncate).
double loadElement(const void *data, int64_t index, plan::DType type);
void storeElement(void *data, int64_t index, plan::DType type, double value);
/// Whether no element is NaN or infinite; true for integers.
bool allFinite(std::span<const std::byte> data, plan::DType type);

} // namespace cleave
