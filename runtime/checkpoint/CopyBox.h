// Copies boxes between row-major arrays.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace cleave {

/// Copies a box of `size` elements (of `width` bytes) between row-major arrays of shapes srcShape and dstShape.
void copyBox(std::byte *dst, std::span<const int64_t> dstShape, std::span<const int64_t> dstStart, const std::byte *src,
             std::span<const int64_t> srcShape, std::span<const int64_t> srcStart, std::span<const int64_t> size,
             size_t width);

} // namespace cleave
