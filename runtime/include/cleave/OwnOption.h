// Options that a program declares itself: a name, a type, a default, and the value of this run.
#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <variant>
#include <vector>

namespace cleave {

/// A value of a program's own option.
using OptionValue = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>>;

struct OwnOption {
  std::string name; ///< "--width"
  std::string help;
  OptionValue otherwise;                 ///< the default, whose type is the option's; it is allowed in any case
  std::vector<OptionValue> choices = {}; ///< the other allowed values; empty: any
  int64_t least = std::numeric_limits<int64_t>::min(), most = std::numeric_limits<int64_t>::max(); ///< of whole numbers
  std::string command = {};      ///< that the option belongs to; empty: it is the model's, and every command has it
  OptionValue value = otherwise; ///< of this run
};

} // namespace cleave
