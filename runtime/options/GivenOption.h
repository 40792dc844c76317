// Cuts a command line into options and their values.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace cleave {

/// An option of a command line with its value.
struct GivenOption {
  std::string name;                      ///< "--batch", "-o"; empty: a word that belongs to no option
  std::optional<std::string> value = {}; ///< "--batch=8", "--batch 8", "-oFILE"; none: no word follows that can be one
};

enum class TakesValue : uint8_t { Unknown, No, Yes };

/// A word names an option if it begins with two dashes, or with a dash and a letter: "-1" and "-" are values. A word
/// after an option is its value unless it names an option, or `takes` says that the option has none. After "--" no word
/// names an option.
std::vector<GivenOption> givenOptions(const std::vector<std::string> &words,
                                      const std::function<TakesValue(const std::string &name)> &takes);

/// The words again, with each value joined to its option.
std::vector<std::string> wordsOf(const std::vector<GivenOption> &given);

} // namespace cleave
