// Files that Cleave keeps for the user, to be faster the next time. All of them may be removed.
#pragma once
#include <cstdlib>
#include <string>
#include <utility>

namespace cleave {

/// The path of a file in XDG_CACHE_HOME/cleave or HOME/.cache/cleave; empty if neither variable is set.
inline std::string cacheFile(const std::string &name) {
  for (const auto &[variable, below] : {std::pair("XDG_CACHE_HOME", ""), std::pair("HOME", "/.cache")})
    if (const char *value = std::getenv(variable); value && *value)
      return std::string(value) + below + "/cleave/" + name;
  return "";
}

} // namespace cleave
