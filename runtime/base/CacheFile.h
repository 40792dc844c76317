// Files that Cleave keeps for the user, to be faster the next time. All of them may be removed.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <ctime>
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

/// The content of a file of the cache, which is trusted if only this user can have written it.
struct OwnFile {
  std::string content, problem; ///< why it was not read; empty: it was, or there is no file
  time_t written = 0;
};
/// Reads a regular file of at most `most` bytes that this user owns and nobody else may write.
OwnFile readOwnFile(const std::string &path, uint64_t most = uint64_t{1} << 30);

} // namespace cleave
