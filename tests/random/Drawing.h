// Draws the body of a class call by call during a trace. Each drawn call is executed immediately, so that shapes are
// known, and calls that the DSL rejects are dropped.
#pragma once
#include "tests/random/Chance.h"
#include "tests/random/Recipe.h"

#include "cleave/cleave.h"

#include <functional>
#include <map>

namespace cleave {
class Trace;
}

namespace cleave::random_models {

class Instance;

class Drawing {
public:
  Drawing(Chance &chance, Recipe &recipe, int cls, Instance &instance, Trace &trace, std::vector<Tensor> inputs,
          int depth);

  Chance &chance;
  Recipe &recipe;
  const int depth;

  /// Draws about `count` calls.
  void calls(int64_t count);
  Class &cls() { return recipe.classes[static_cast<size_t>(number)]; }
  bool whole() const { return recipe.wholeNumbers; }
  int64_t rows() const { return recipe.rows(); }

  Tensor at(int value) const { return values[static_cast<size_t>(value)]; }
  Shape shape(int value) const { return at(value).shape(); }
  int count() const { return static_cast<int>(values.size()); }
  bool constant(int value) const { return constants[static_cast<size_t>(value)]; }
  bool used(int value) const { return uses[static_cast<size_t>(value)] > 0; }

  using Test = std::function<bool(Tensor)>;
  /// Draws a float value that `test` accepts; prefers late and unused values. Returns -1 if there is none.
  int pick(const Test &test = {});
  int pickInteger(const Test &test);
  /// Adds a node and executes its call. Returns the number of its value, or -1 if the DSL rejects the call or the
  /// result is too large.
  int add(const std::string &op, std::vector<int> in, std::vector<int64_t> ints = {}, std::vector<double> reals = {},
          int member = -1, std::vector<std::string> words = {});
  /// Adds a member to the class, constructs it, and returns its index.
  int declare(Part member);
  /// Reads a new or an existing parameter of this shape. Returns its value, or -1 if the shape is too large.
  int parameter(Shape shape, double bound = 0.5);
  std::string newName(const std::string &prefix);
  /// Ends the body with this value as its result.
  void finish(int result);
  /// Draws a new module or a list of modules and calls it on `x`, and on `y` if y >= 0. Returns the value, or -1 if the
  /// call is rejected.
  int newModule(int x, int y, bool list);
  Instance &self() { return instance; }

private:
  int choose(const std::vector<int> &candidates);
  void showMembers();

  int number;
  Instance &instance;
  Trace &trace;
  std::vector<Tensor> values;
  std::vector<int> uses;
  std::vector<bool> constants; ///< whether a value is computed from constants only
};

constexpr int64_t mostElements = 1536;

/// Generates the case of a seed.
Recipe generate(uint64_t seed);

} // namespace cleave::random_models
