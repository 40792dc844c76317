// Sizes and names of element types.
#pragma once
#include "cleave/DType.h"

namespace cleave {

/// Bytes of one element (I1 takes one byte).
constexpr int64_t dtypeSize(DType type) {
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
  case DType::U8:
    return 1;
  }
  return 0;
}

/// "f32", "bf16", ...; "unknown" for a value that is no element type.
constexpr const char *dtypeName(DType type) {
  constexpr const char *names[] = {"f32", "f16", "bf16", "i32", "i64", "i1", "u8"};
  return type <= DType::U8 ? names[static_cast<int>(type)] : "unknown";
}

constexpr bool isFloat(DType type) { return type <= DType::BF16; }

} // namespace cleave
