// Matches paths with patterns, and makes patterns of paths.
#include "partitioner/strategy/Pattern.h"

#include <algorithm>

namespace cleave::partitioner {

/// Matches one part of a path with one part of a pattern, both without dots. At a mismatch the last star takes one more
/// letter; earlier stars need not be tried again.
static bool partMatches(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0, star = std::string_view::npos, taken = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = n;
    } else if (p < pattern.size() && pattern[p] == name[n])
      ++p, ++n;
    else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++taken;
    } else
      return false;
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

bool matches(const std::string &pattern, const std::string &name) {
  std::string_view patterns = pattern, names = name;
  for (;;) {
    const size_t p = patterns.find('.'), n = names.find('.');
    if (!partMatches(patterns.substr(0, p), names.substr(0, n)))
      return false;
    if (p == std::string_view::npos || n == std::string_view::npos)
      return p == n;
    patterns.remove_prefix(p + 1);
    names.remove_prefix(n + 1);
  }
}

bool isIndex(std::string_view part) {
  return !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
}

bool isListMember(const std::string &path) { return isIndex(std::string_view(path).substr(path.rfind('.') + 1)); }

std::string layerPattern(const std::string &path) {
  std::string pattern;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    const std::string part = path.substr(begin, end - begin);
    pattern += (begin ? "." : "") + (isIndex(part) ? "*" : part);
    begin = end + 1;
  }
  return pattern;
}

} // namespace cleave::partitioner
