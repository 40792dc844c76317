// The keys by which a rule of a strategy names what it splits: "0", "0:3x4x16.1" or "heads" (docs/strategy.md).
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cleave::partitioner {

struct ShardKey {
  bool heads = false; ///< the factor that becomes the heads of an attention
  int64_t dim = 0;
  std::vector<int64_t> factors; ///< sizes, major first; empty: the whole dimension is split
  size_t factor = 0;            ///< the one that is split
  /// Returns nullopt if the text is no key.
  static std::optional<ShardKey> parse(const std::string &text);
};

} // namespace cleave::partitioner
