// The options that a program declares: their table, and where their values come from. In this order: the command line,
// the checkpoint or plan that the command reads, a recipe, the default. The command line may only repeat the value of a
// checkpoint or plan, except of a plan of --like, whose values it replaces. Values are compared as values: 0.20 is 0.2.
#pragma once
#include "cleave/Program.h"
#include "runtime/options/GivenOption.h"
#include "runtime/options/Option.h"

#include <deque>
#include <exception>
#include <nlohmann/json.hpp>
#include <set>

namespace cleave {

/// A value of --recipe that is not given to an option of the command.
struct RecipeValue {
  std::string name, value, place; ///< place: file and line
  bool known;                     ///< an option that some command has
};

class OwnOptions {
public:
  std::vector<GivenOption> line; ///< the command line, without the command
  std::vector<RecipeValue> recipe;
  nlohmann::json stored;      ///< options of the checkpoint or plan that the command line names
  bool storedYields = false;  ///< the command line may give other values
  std::string storedIn;       ///< the checkpoint or plan, for messages
  std::exception_ptr mistake; ///< the first mistake, which the program reports when it runs; may be null

  /// Runs `fn` and keeps its error if it is the first.
  void keepMistake(const std::function<void()> &fn);

  /// Adds the option to the table and chooses its value, which it returns. A mistake is kept, and the value then is the
  /// default. `builtIn`: names that it cannot have.
  OptionValue declare(OwnOption option, const std::set<std::string> &builtIn, Where where);

  /// Throws the mistake, and userError for what a recipe or `stored` has and the program has not.
  void check(const std::string &program) const;

  /// The rows of a command: the model's options, and its own.
  std::vector<Option> rowsOf(const std::string &command, unsigned bit) const;
  /// The model's options as a JSON object in ASCII: what checkpoints and plans store.
  std::string json() const;

private:
  void choose(OwnOption &option);
  std::optional<OptionValue> givenTo(const OwnOption &option);
  std::optional<OptionValue> recipeFor(const OwnOption &option) const;

  std::deque<OwnOption> declared; ///< rows refer to them
};

/// A stored value as it would be given; texts that are empty are shown as "".
std::string textOfStored(const nlohmann::json &value);

} // namespace cleave
