// Scratch memory of the Ops of a rank.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace cleave {

/// Scratch memory shared by all Ops of a rank, which run one after another.
struct Workspace {
  std::byte *memory = nullptr;
  size_t need = 0;
  /// Reserves a part for an Op whose other parts take `used` bytes; returns its offset.
  size_t reserve(size_t &used, size_t bytes) {
    const size_t offset = used;
    used += (bytes + 63) / 64 * 64;
    need = std::max(need, used);
    return offset;
  }
  /// The same in floats.
  int64_t reserveFloats(size_t &used, int64_t count) {
    return static_cast<int64_t>(reserve(used, static_cast<size_t>(count) * sizeof(float)) / sizeof(float));
  }
  float *floats(int64_t offset) const { return reinterpret_cast<float *>(memory) + offset; }
};

} // namespace cleave
