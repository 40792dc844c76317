// Builds modules from a recipe's classes: creates the declared members; forward() interprets the class's body.
#pragma once
#include "tests/random/Recipe.h"

#include "cleave/cleave.h"

#include <memory>

namespace cleave::random_models {

class Instance final : public Module {
public:
  /// `marks`: whether stage() and withSharding() are called. The model computes the same function without them.
  Instance(const Recipe &recipe, int cls, bool marks);
  Instance(Module &parent, std::string name, const Recipe &recipe, int cls, bool marks);

  Tensor forward(Tensor x) override { return run({x}); }
  Tensor forward(Tensor x, Tensor y) override { return run({x, y}); }
  Tensor forward(Tensor x, Tensor y, Tensor z) override { return run({x, y, z}); }
  Tensor run(std::vector<Tensor> inputs) { return outputs(std::move(inputs))[0]; }
  /// Interprets the body. Returns its result, then the root's second output and its others, if it has them.
  std::vector<Tensor> outputs(std::vector<Tensor> inputs);
  std::vector<Tensor> outputsOf(const std::vector<Tensor> &values) const;
  /// Executes one node on the values computed so far.
  Tensor emit(const Node &node, const std::vector<Tensor> &values);

  /// Creates the class's members that do not exist yet.
  void declare();
  Parameter &parameter(int member) { return *held.at(static_cast<size_t>(member)).parameter; }
  Buffer &buffer(int member) { return *held.at(static_cast<size_t>(member)).buffer; }
  /// A layer, module or list; `at` >= 0 selects a module of a list.
  Module &module(int member, int64_t at = -1);
  /// Appends a module to a list.
  void grow(int member);

  const Class &cls() const { return recipe.classes[static_cast<size_t>(number)]; }
  bool marked() const { return marks; }

private:
  struct Held {
    std::unique_ptr<Parameter> parameter;
    std::unique_ptr<Buffer> buffer;
    std::unique_ptr<Module> module;
  };
  Held make(const Part &member);

  const Recipe &recipe;
  int number;
  bool marks;
  std::vector<Held> held;
};

/// Calls a module with one to three tensors.
Tensor callModule(Module &module, const std::vector<Tensor> &in);

} // namespace cleave::random_models
