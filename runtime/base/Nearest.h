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

/// The value `given` of an option; `otherwise` where it is empty. Throws a user error where it is none of `known`.
std::string oneOf(const char *option, const std::string &given, const std::string &otherwise,
                  const std::vector<std::string> &known);

/// Throws a user error that names the first of `args` that begins with a dash and is none of `options`, and the nearest
/// that is. `who`: the command, for the message. Values of options ("-1") and what comes after "--" are left alone.
void checkOptionNames(const std::vector<std::string> &args, const std::vector<std::string> &options,
                      const std::string &who);

} // namespace cleave
