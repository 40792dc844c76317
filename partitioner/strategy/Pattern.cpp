// Matches paths with patterns.
#include "partitioner/strategy/Pattern.h"

#include <string_view>

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

} // namespace cleave::partitioner
