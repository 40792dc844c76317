// A sequence of layers, created in place:
//
//   Sequential layers{*this, "layers", layer<Linear>(784, 512), relu, layer<Linear>(512, 10)};
//
// The parts are named "0", "1", ... as in PyTorch, counting functions too: the parameters above are layers.0.weight and
// layers.2.weight.
#pragma once
#include "cleave/Module.h"

#include <functional>
#include <tuple>
#include <type_traits>

namespace cleave {

/// Constructor arguments of a module, without parent and name.
template <class T, class... Args> struct LayerToMake {
  std::tuple<Args...> args;
};

/// A part of a Sequential: `layer<Linear>(784, 512)`.
template <class T, class... Args> LayerToMake<T, std::decay_t<Args>...> layer(Args &&...args) {
  return {{std::forward<Args>(args)...}};
}

/// A name with the source location of its use.
struct NameHere {
  template <class S, class = std::enable_if_t<std::is_convertible_v<S, std::string>>>
  NameHere(S &&name, Where where = Where::current()) : name(std::forward<S>(name)), where(where) {}
  std::string name;
  Where where;
};

class Sequential : public Module {
public:
  /// Each part is a `layer<T>(...)`, or a function of a Tensor (`relu`, a lambda) that returns one.
  template <class... Parts>
  Sequential(Module &parent, NameHere name, Parts &&...parts) : Module(parent, std::move(name.name), name.where) {
    (add(std::forward<Parts>(parts), name.where), ...);
  }

  /// Appends a part.
  template <class Part> void append(Part &&part, Where where = Where::current()) {
    add(std::forward<Part>(part), where);
  }
  int64_t size() const { return static_cast<int64_t>(steps.size()); }
  /// Part `i` as a module; null if it is a function.
  Module *operator[](ListIndex i) { return steps[internal::checkedIndex(*this, i, size())].module.get(); }

  /// Applies the parts in order.
  Tensor forward(Tensor x) override;

private:
  struct Step {
    std::unique_ptr<Module> module; ///< null: use `function`
    std::function<Tensor(Tensor, Where)> function;
  };

  template <class T, class... Args> void add(LayerToMake<T, Args...> part, Where where) {
    std::apply(
        [&](auto &...args) {
          const std::string name = std::to_string(steps.size());
          if constexpr (std::is_constructible_v<T, Module &, std::string, Args &..., Where>)
            steps.push_back({std::make_unique<T>(static_cast<Module &>(*this), name, args..., where), {}});
          else
            steps.push_back({std::make_unique<T>(static_cast<Module &>(*this), name, args...), {}});
        },
        part.args);
  }
  template <class F> void add(F &&function, Where) {
    if constexpr (std::is_invocable_r_v<Tensor, F &, Tensor, Where>)
      steps.push_back({nullptr, std::forward<F>(function)});
    else {
      static_assert(std::is_invocable_r_v<Tensor, F &, Tensor>,
                    "a part of a Sequential is layer<T>(...) or a function of a Tensor that returns one");
      steps.push_back({nullptr, [f = std::forward<F>(function)](Tensor x, Where) mutable { return Tensor(f(x)); }});
    }
  }

  std::vector<Step> steps;
};

} // namespace cleave
