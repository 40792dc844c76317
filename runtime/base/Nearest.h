// Words that were mistyped: what is not known, and which known one is meant.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace cleave {

/// The known word with the fewest insertions, removals, changes and swaps of neighbours (Damerau 1964) from `word`;
/// nothing where none is near: at most a third of its letters may differ, and one letter always.
std::optional<std::string> nearest(const std::string &word, const std::vector<std::string> &known);

/// "; did you mean --mesh?", or nothing.
std::string suggestion(const std::string &word, const std::vector<std::string> &known);

/// Throws a user error that names the first of `args` that begins with a dash and is none of `options`, and the nearest
/// that is. `who`: the command, for the message. Values of options ("-1") and what comes after "--" are left alone.
void checkOptionNames(const std::vector<std::string> &args, const std::vector<std::string> &options,
                      const std::string &who);

} // namespace cleave
