// A recipe's classes as live modules: members are created as declared, and forward interprets the class's body.
#pragma once
#include "tests/random/Recipe.h"

#include "cleave/cleave.h"

#include <memory>

namespace cleave::random_models {

class Instance final : public Module {
public:
  /// `marks`: whether stage() and withSharding() are called; without them the model is the same function.
  Instance(const Recipe &recipe, int cls, bool marks);
  Instance(Module &parent, std::string name, const Recipe &recipe, int cls, bool marks);

  Tensor forward(Tensor x) override { return run({x}); }
  Tensor forward(Tensor x, Tensor y) override { return run({x, y}); }
  Tensor forward(Tensor x, Tensor y, Tensor z) override { return run({x, y, z}); }
  Tensor run(std::vector<Tensor> inputs) { return outputs(std::move(inputs))[0]; }
  /// Of the root: one or two.
  std::vector<Tensor> outputs(std::vector<Tensor> inputs);
  std::vector<Tensor> outputsOf(const std::vector<Tensor> &values) const;
  /// What a node gives on the values before it.
  Tensor emit(const Node &node, const std::vector<Tensor> &values);

  /// Makes the class's members that are not there yet.
  void declare();
  Parameter &parameter(int member) { return *held.at(static_cast<size_t>(member)).parameter; }
  Buffer &buffer(int member) { return *held.at(static_cast<size_t>(member)).buffer; }
  /// A layer, module or list; of a list, `at` >= 0: that one.
  Module &module(int member, int64_t at = -1);
  /// One more module at the end of a list.
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
