// The command line of a program that defines a model: train, eval, plan, check and graph, with the same options in
// every program. Usage:
//
//   int main(int argc, char **argv) {
//     Program program{"mlp", argc, argv};
//     int64_t width = program.option("--width", 512, "width of the hidden layers");
//     return program.run<Mlp>({.data = Mnist{}, .batch = 128}, width);
//   }
#pragma once
#include "cleave/Trainer.h"

#include <sstream>

namespace cleave {

class Program {
public:
  Program(std::string name, int argc, char **argv);
  ~Program();
  Program(const Program &) = delete;

  /// Declares an option of the model and returns its value: from the command line, else from the checkpoint or plan
  /// that the command line names, else `otherwise`. T: an integer, double, bool, std::string or std::vector<int64_t>
  /// ("512,512"). `choices`: the values allowed (empty: any; integers must be positive). Mistakes are reported by
  /// `run`.
  template <class T>
  T option(const std::string &name, T otherwise, const std::string &help, std::vector<T> choices = {});
  std::string option(const std::string &name, const char *otherwise, const std::string &help,
                     std::vector<std::string> choices = {}) {
    return option<std::string>(name, otherwise, help, std::move(choices));
  }

  /// Makes the model from `args` and does what the command line asks. Returns the exit status: 0 success, 1 our own
  /// fault, 2 a mistake of the user's, 3 a plan, check or environment that fails.
  template <class M, class... Args> int run(TrainConfig config, const Args &...args) {
    return run(
        std::move(config), [&] { return std::unique_ptr<Module>(new M{args...}); },
        [](Module &module) { return makeModel(static_cast<M &>(module)); });
  }

private:
  enum class Kind : uint8_t { Integer, Number, Boolean, Word, Integers };
  struct Declared {
    std::string name, help, otherwise;
    Kind kind;
    std::vector<std::string> choices;
    std::string value; ///< chosen
  };
  /// Text of the option's value.
  std::string declare(Declared option);
  int run(TrainConfig config, const std::function<std::unique_ptr<Module>()> &make,
          const std::function<Model(Module &)> &wrap);

  template <class T> static std::string write(const T &value);
  template <class T> static T read(const std::string &text);

  struct Impl;
  std::unique_ptr<Impl> impl;
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
    T value{};
    std::istringstream(text) >> value;
    return value;
  }
}

template <class T>
T Program::option(const std::string &name, T otherwise, const std::string &help, std::vector<T> choices) {
  constexpr Kind kind = std::is_same_v<T, bool>          ? Kind::Boolean
                        : std::is_integral_v<T>          ? Kind::Integer
                        : std::is_floating_point_v<T>    ? Kind::Number
                        : std::is_same_v<T, std::string> ? Kind::Word
                                                         : Kind::Integers;
  std::vector<std::string> allowed;
  for (const T &choice : choices)
    allowed.push_back(write(choice));
  return read<T>(declare({name, help, write(otherwise), kind, allowed, {}}));
}

} // namespace cleave
