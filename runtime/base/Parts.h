// Cuts texts at separators.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

namespace cleave {

/// The parts of a text between separators; a separator at the end begins an empty part.
inline std::vector<std::string> partsOf(const std::string &text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

} // namespace cleave
