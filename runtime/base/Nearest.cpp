// Edit distances between words.
#include "runtime/base/Nearest.h"
#include "runtime/base/Error.h"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave {

/// Restricted Damerau-Levenshtein distance, with three rows of the table.
static size_t distance(const std::string &a, const std::string &b) {
  std::vector<size_t> before, above(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j)
    above[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before = above;
    std::swap(above, row);
  }
  return above[b.size()];
}

std::optional<std::string> nearest(const std::string &word, const std::vector<std::string> &known) {
  std::optional<std::string> best;
  size_t least = 0;
  for (const std::string &candidate : known)
    if (const size_t apart = distance(word, candidate); !best || apart < least) {
      best = candidate;
      least = apart;
    }
  const auto letters =
      static_cast<size_t>(std::count_if(word.begin(), word.end(), [](unsigned char c) { return std::isalnum(c); }));
  return best && least <= std::max<size_t>(1, letters / 3) ? best : std::nullopt;
}

std::string suggestion(const std::string &word, const std::vector<std::string> &known) {
  const auto found = nearest(word, known);
  return found ? "; did you mean " + *found + "?" : "";
}

std::string oneOf(const char *option, const std::string &given, const std::string &otherwise,
                  const std::vector<std::string> &known) {
  if (given.empty())
    return otherwise;
  if (std::find(known.begin(), known.end(), given) == known.end())
    throw userError(
        fmt::format("{} {}: must be one of {}{}", option, given, fmt::join(known, ", "), suggestion(given, known)));
  return given;
}

} // namespace cleave
