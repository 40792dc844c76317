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

/// Throws a user error that names the first of `args` that begins with a dash and is not in `options`, and the nearest
/// option. `who`: the command, for the message. Ignores values ("-1") and arguments after "--".
void checkOptionNames(const std::vector<std::string> &args, const std::vector<std::string> &options,
                      const std::string &who);

} // namespace cleave
