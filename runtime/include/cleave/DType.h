// Element types of tensors.
#pragma once
#include <cstdint>

namespace cleave {

/// Element types. F16 is IEEE 754 binary16, BF16 the upper half of a float; I1 is a truth value.
/// U8 is an unsigned byte; arithmetic is modulo 256.
enum class DType : uint8_t { F32, F16, BF16, I32, I64, I1, U8 };

} // namespace cleave
