// The command line of a program that defines a model: train, eval, predict, plan, check and graph, with the same
// options in every program, and commands that the program adds. Usage:
//
//   int main(int argc, char **argv) {
//     Program program{"mlp", argc, argv};
//     int64_t width = program.option("--width", 512, "width of the hidden layers");
//     return program.run<Mlp>({.data = Mnist{}, .batch = 128}, width);
//   }
#pragma once
#include "cleave/Trainer.h"

#include <algorithm>
#include <limits>
#include <sstream>
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
  /// the command line, else the default `otherwise`. T: an integer, double, bool, std::string or std::vector<int64_t>
  /// ("512,512"). `choices`: the allowed values (empty: any). If the value is invalid, this returns `otherwise`, and
  /// `run` reports the error.
  template <class T>
  T option(const std::string &name, T otherwise, const std::string &help, std::vector<T> choices = {});
  /// The same for integers, or lists of integers, within a range.
  template <class T> T option(const std::string &name, T otherwise, const std::string &help, Range range);
  std::string option(const std::string &name, const char *otherwise, const std::string &help,
                     std::vector<std::string> choices = {}) {
    return option<std::string>(name, otherwise, help, std::move(choices));
  }

  /// Declares a command of this program that uses a trained model: `PROGRAM NAME --checkpoint DIR`. See Command.
  Command command(const std::string &name, const std::string &about);

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
  enum class Kind : uint8_t { Integer, Number, Boolean, Word, Integers };
  struct Declared {
    std::string name, help, otherwise;
    Kind kind;
    std::vector<std::string> choices;
    int64_t least = 0, most = 0; ///< range of an integer
    std::string value = {};      ///< the option's value as text
    std::string command = {};    ///< command that the option belongs to; empty: a model option, for every command
  };
  /// The option's value as text.
  std::string declare(Declared option);
  /// A model together with its owner.
  struct Made {
    std::shared_ptr<void> module;
    Model model;
  };
  int run(TrainConfig config, const std::function<Made()> &make);

  template <class T>
  T declareAs(const std::string &command, const std::string &name, const T &otherwise, const std::string &help,
              const std::vector<T> &choices, Range range);
  template <class T> static std::string write(const T &value);
  template <class T> static T read(const std::string &text);

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
  T option(const std::string &name, T otherwise, const std::string &help, std::vector<T> choices = {}) {
    return program->declareAs<T>(this->name, name, otherwise, help, choices, Range::any());
  }
  /// The same for integers within a range.
  template <class T> T option(const std::string &name, T otherwise, const std::string &help, Range range) {
    return program->declareAs<T>(this->name, name, otherwise, help, {}, range);
  }
  std::string option(const std::string &name, const char *otherwise, const std::string &help,
                     std::vector<std::string> choices = {}) {
    return option<std::string>(name, otherwise, help, std::move(choices));
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

template <class T> std::string Program::write(const T &value) {
  std::ostringstream out;
  out.precision(17);
  if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
    for (size_t i = 0; i < value.size(); ++i)
      out << (i ? "," : "") << value[i];
  } else if constexpr (std::is_same_v<T, bool>)
    out << (value ? "true" : "false");
  else
    out << value;
  return out.str();
}

template <class T> T Program::read(const std::string &text) {
  if constexpr (std::is_same_v<T, std::string>)
    return text;
  else if constexpr (std::is_same_v<T, bool>)
    return text == "true" || text == "1";
  else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
    T values;
    std::istringstream in(text);
    for (std::string part; std::getline(in, part, ',');)
      values.push_back(read<int64_t>(part));
    return values;
  } else {
    std::conditional_t<std::is_integral_v<T>, int64_t, T> value{};
    std::istringstream(text) >> value;
    return static_cast<T>(value);
  }
}

template <class T>
T Program::declareAs(const std::string &command, const std::string &name, const T &otherwise, const std::string &help,
                     const std::vector<T> &choices, Range range) {
  constexpr Kind kind = std::is_same_v<T, bool>          ? Kind::Boolean
                        : std::is_integral_v<T>          ? Kind::Integer
                        : std::is_floating_point_v<T>    ? Kind::Number
                        : std::is_same_v<T, std::string> ? Kind::Word
                                                         : Kind::Integers;
  std::vector<std::string> allowed;
  for (const T &choice : choices)
    allowed.push_back(write(choice));
  int64_t least = range.least, most = range.most;
  if constexpr (std::is_integral_v<T>) { // the limits of T
    if (std::is_unsigned_v<T>)
      least = std::max<int64_t>(least, 0);
    else
      least = std::max<int64_t>(least, static_cast<int64_t>(std::numeric_limits<T>::min()));
    if (sizeof(T) < sizeof(int64_t))
      most = std::min<int64_t>(most, static_cast<int64_t>(std::numeric_limits<T>::max()));
  }
  return read<T>(declare({name, help, write(otherwise), kind, allowed, least, most, {}, command}));
}

template <class T>
T Program::option(const std::string &name, T otherwise, const std::string &help, std::vector<T> choices) {
  return declareAs("", name, otherwise, help, choices, Range::any());
}

template <class T> T Program::option(const std::string &name, T otherwise, const std::string &help, Range range) {
  static_assert(std::is_integral_v<T> || std::is_same_v<T, std::vector<int64_t>>, "a range is of whole numbers");
  return declareAs("", name, otherwise, help, std::vector<T>(), range);
}

} // namespace cleave
