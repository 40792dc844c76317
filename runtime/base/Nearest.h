// Suggestions for mistyped words.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace cleave {

/// The known word with the smallest edit distance (insertions, deletions, substitutions, transpositions; Damerau 1964)
/// from `word`. Returns nullopt if more than a third of its letters differ (one letter may always differ).
std::optional<std::string> nearest(const std::string &word, const std::vector<std::string> &known);

/// "; did you mean --mesh?", or "".
std::string suggestion(const std::string &word, const std::vector<std::string> &known);

/// The value `given` of an option, or `otherwise` if it is empty. Throws a user error if it is not one of `known`.
std::string oneOf(const char *option, const std::string &given, const std::string &otherwise,
                  const std::vector<std::string> &known);

} // namespace cleave
