// The command line of a program that defines a model: train, eval, predict, plan, check and graph, with the same
// options in every program, and commands that the program adds. Usage:
//
//   int main(int argc, char **argv) {
//     Program program{"mlp", argc, argv};
//     int64_t width = program.option("--width", 512, "width of the hidden layers");
//     return program.run<Mlp>({.data = Mnist{}, .batch = 128}, width);
//   }
#pragma once
#include "cleave/OwnOption.h"
#include "cleave/Trainer.h"

#include <algorithm>
#include <limits>
#include <type_traits>

namespace cleave {

class Command;

/// The range of an integer option, limits included: `atLeast(1)`, `between(0, 8)`.
class Range {
  struct Private {};

public:
  Range(Private, int64_t least, int64_t most) : least(least), most(most) {}
  int64_t least, most;
  static Range any() { return {Private{}, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()}; }
  friend Range atLeast(int64_t);
  friend Range between(int64_t, int64_t);
};
inline Range between(int64_t least, int64_t most) { return {Range::Private{}, least, most}; }
inline Range atLeast(int64_t least) { return between(least, std::numeric_limits<int64_t>::max()); }

class Program {
public:
  Program(std::string name, int argc, char **argv);
  ~Program();
  Program(const Program &) = delete;

  /// Declares a model option and returns its value: from the command line, else from the checkpoint or plan named on
  /// the command line, else from a recipe, else the default `otherwise`. T: an integer, double, bool, std::string or
  /// std::vector<int64_t> ("512,512"). A bool is true if it is given without a value. `choices`: the allowed values
  /// (empty: any); the default is allowed, too. If the value is invalid, this returns `otherwise`, and `run` reports
  /// the error. The name begins with two dashes, and no command of Cleave has an option of this name.
  template <class T>
  T option(const std::string &name, T otherwise, const std::string &help, std::vector<T> choices = {},
           Where where = Where::current()) {
    return declareAs("", name, otherwise, help, choices, Range::any(), where);
  }
  /// The same for integers, or lists of integers, within a range.
  template <class T>
  T option(const std::string &name, T otherwise, const std::string &help, Range range, Where where = Where::current()) {
    static_assert(std::is_integral_v<T> || std::is_same_v<T, std::vector<int64_t>>, "a range is of whole numbers");
    return declareAs("", name, otherwise, help, std::vector<T>(), range, where);
  }
  std::string option(const std::string &name, const char *otherwise, const std::string &help,
                     std::vector<std::string> choices = {}, Where where = Where::current()) {
    return option<std::string>(name, otherwise, help, std::move(choices), where);
  }

  /// Declares a command of this program that uses a trained model: `PROGRAM NAME --checkpoint DIR`. See Command.
  Command command(const std::string &name, const std::string &about, Where where = Where::current());

  /// Constructs the model from `args` and runs the command. Returns the exit status: 0 success, 1 internal error, 2
  /// user error, 3 a plan, check or environment that fails.
  template <class M, class... Args> int run(TrainConfig config, const Args &...args) {
    return run(std::move(config), [&] {
      std::shared_ptr<M> module(new M{args...});
      return Made{module, makeModel(*module)};
    });
  }

private:
  friend class Command;
  /// The option's value.
  OptionValue declare(OwnOption option, Where where);
  /// A model together with its owner.
  struct Made {
    std::shared_ptr<void> module;
    Model model;
  };
  int run(TrainConfig config, const std::function<Made()> &make);

  template <class T>
  T declareAs(const std::string &command, const std::string &name, const T &otherwise, const std::string &help,
              const std::vector<T> &choices, Range range, Where where);

  struct Impl;
  std::unique_ptr<Impl> impl;
};

/// A command of the program, with its own options in addition to --checkpoint, --mesh, --backend and --threads:
///
///   Command sample = program.command("sample", "continues a text");
///   auto prompt = sample.option("--prompt", "", "the text");
///   sample.does([=](Predictor &model) { ... });
class Command {
public:
  /// As Program::option, but only for this command, and not stored in checkpoints.
  template <class T>
  T option(const std::string &name, T otherwise, const std::string &help, std::vector<T> choices = {},
           Where where = Where::current()) {
    return program->declareAs<T>(this->name, name, otherwise, help, choices, Range::any(), where);
  }
  /// The same for integers within a range.
  template <class T>
  T option(const std::string &name, T otherwise, const std::string &help, Range range, Where where = Where::current()) {
    return program->declareAs<T>(this->name, name, otherwise, help, {}, range, where);
  }
  std::string option(const std::string &name, const char *otherwise, const std::string &help,
                     std::vector<std::string> choices = {}, Where where = Where::current()) {
    return option<std::string>(name, otherwise, help, std::move(choices), where);
  }
  /// Sets the function that runs the command on the checkpoint's model, which computes `batch` samples together. The
  /// function reports invalid options by throwing std::invalid_argument.
  void does(std::function<void(Predictor &)> body, int64_t batch = 1);

private:
  friend class Program;
  Command(Program *program, std::string name) : program(program), name(std::move(name)) {}
  Program *program;
  std::string name;
};

namespace internal {
/// The alternative of OptionValue for options of type T.
template <class T>
using KeptAs = std::conditional_t<
    std::is_same_v<T, bool>, bool,
    std::conditional_t<std::is_integral_v<T>, int64_t, std::conditional_t<std::is_floating_point_v<T>, double, T>>>;
/// The double that has the float's shortest text: 0.1 for 0.1f.
double asWritten(float value);
} // namespace internal

template <class T>
T Program::declareAs(const std::string &command, const std::string &name, const T &otherwise, const std::string &help,
                     const std::vector<T> &choices, Range range, Where where) {
  using Kept = internal::KeptAs<T>;
  static_assert(std::is_constructible_v<OptionValue, std::in_place_type_t<Kept>>,
                "an option is an integer, a double, a bool, a std::string or a std::vector<int64_t>");
  const auto kept = [](const T &value) {
    if constexpr (std::is_same_v<T, float>)
      return internal::asWritten(value);
    else
      return static_cast<Kept>(value);
  };
  OwnOption option{name, help, kept(otherwise), {}, range.least, range.most, command};
  for (const T &choice : choices)
    option.choices.push_back(kept(choice));
  if constexpr (std::is_integral_v<T>) { // the limits of T
    if (std::is_unsigned_v<T>)
      option.least = std::max<int64_t>(option.least, 0);
    else
      option.least = std::max<int64_t>(option.least, static_cast<int64_t>(std::numeric_limits<T>::min()));
    if (sizeof(T) < sizeof(int64_t))
      option.most = std::min<int64_t>(option.most, static_cast<int64_t>(std::numeric_limits<T>::max()));
  }
  return static_cast<T>(std::get<Kept>(declare(std::move(option), where)));
}

} // namespace cleave
