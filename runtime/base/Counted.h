// Counts for messages.
#pragma once
#include <cstdint>
#include <string>

namespace cleave {

/// A count with thousands separators: "118,400".
inline std::string grouped(int64_t value) {
  std::string text = std::to_string(value);
  const int64_t begin = value < 0 ? 1 : 0;
  for (int64_t at = static_cast<int64_t>(text.size()) - 3; at > begin; at -= 3)
    text.insert(static_cast<size_t>(at), ",");
  return text;
}

/// A count with its unit: "1 rank", "2 ranks".
inline std::string counted(uint64_t count, const std::string &unit) {
  return std::to_string(count) + " " + unit + (count == 1 ? "" : "s");
}

} // namespace cleave
