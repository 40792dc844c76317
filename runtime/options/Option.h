// The one description of an option. The command line, the checks of values, and what the ranks of a job must agree on
// follow from it.
#pragma once
#include "cleave/RunOptions.h"
#include "runtime/options/OwnOption.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace cleave {

namespace plan {
struct Plan;
}

/// Sets of commands, as bits.
namespace commands {
constexpr unsigned train = 1, eval = 2, predict = 4, planOnly = 8, check = 16, graph = 32;
constexpr unsigned own = 64;        ///< the commands that a program adds
constexpr unsigned cleaveRun = 128; ///< the tool
constexpr unsigned data = 256;
constexpr unsigned compile = train | planOnly | check | graph, trained = eval | predict | own;
} // namespace commands

/// Limits of a number, both included for integers; the upper one is excluded for others.
struct Limits {
  double least = -std::numeric_limits<double>::infinity(), most = std::numeric_limits<double>::infinity();
};

struct Option {
  /// The option is given if its field differs from that of RunOptions(); a program's own option, if its value is not
  /// the default.
  using Field =
      std::variant<std::string RunOptions::*, bool RunOptions::*, int64_t RunOptions::*,
                   std::optional<int64_t> RunOptions::*, std::optional<uint64_t> RunOptions::*,
                   std::optional<double> RunOptions::*, std::vector<std::string> RunOptions::*, const OwnOption *>;
  /// What the option does in some commands.
  struct Use {
    unsigned commands;
    std::string help;
    bool required = false;
  };
  /// What all ranks of a job must have in common: nothing, the value, whether the option is given (as paths may differ
  /// between hosts; "synthetic" is none), or the contents of the file that it names (if it names none: the value).
  enum class Agree : uint8_t { Nothing, Value, Given, Contents };

  const char *name; ///< "--batch"
  Field field;
  std::string type = {}; ///< of the value, in the help; flags have none
  std::vector<Use> uses = {};
  Limits limits = {};
  std::vector<std::string> words = {}; ///< the allowed values; empty: any
  Agree ranks = Agree::Nothing;
  std::vector<const char *> excludes = {}; ///< options described before this one
  /// The plan's value if it is not the one given beside --plan.
  std::function<std::optional<std::string>(const plan::Plan &, const RunOptions &given)> planned = {};
  const char *refused = nullptr; ///< why it cannot be given beside --plan
  const char *group = "Options"; ///< heading in the help
};

/// The options of sessions: of training, evaluation and prediction with a plan.
const std::vector<Option> &sessionOptions();

/// The option's value as text; flags: "given". nullopt: not given.
std::optional<std::string> valueOf(const Option &option, const RunOptions &run);

/// "a whole number from 1 to 256": what a value must be.
std::string wholeNumber(int64_t least, int64_t most);
/// "must be a whole number from 1 to 256"; empty if `text` is one.
std::string problemOfWhole(const std::string &text, int64_t least, int64_t most);
/// "must be a number in [0, 1) that 32 bits hold", as plans hold it; empty if `text` is one.
std::string problemOfNumber(const Limits &limits, const std::string &text);
/// Why `text` is no value of the option: "must be a whole number from 1 to 256"; empty if it is one.
std::string problemOf(const Option &option, const std::string &text);
/// Throws userError that names the first option with a value that is out of range or unknown.
void checkOptions(const std::vector<Option> &options, const RunOptions &run);

/// The values that must be equal on all ranks of a job.
std::vector<std::pair<std::string, std::string>> valuesToAgree(const std::vector<Option> &options,
                                                               const RunOptions &run);

} // namespace cleave
