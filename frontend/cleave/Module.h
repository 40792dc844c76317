// Modules are the parts of a model. They register themselves, their parameters and their buffers by name, so that every
// parameter has a path such as "blocks.0.attention.qkv.weight". A module derives from Module and defines `Tensor
// forward(Tensor)`. Calling the module (`block(x)`) runs forward and sets the module's path on every op. If forward
// returns several tensors, derive from ModuleOf. Modules and parameters must not be moved: children hold their parent's
// address.
#pragma once
#include "cleave/Init.h"
#include "cleave/Tensor.h"

#include <concepts>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace cleave {

class Module;

/// A trainable tensor. It converts to Tensor, so it can be passed to any function. A parameter may be used in several
/// places (tied weights): `linear(x, embedding.weight)`.
class Parameter {
public:
  /// Sizes are positive, with at most 2^40 elements (rule parameter C1). The name is unique in its module, is not empty
  /// and has no dots, stars, quotes or spaces (rule parameter C2).
  Parameter(Module &owner, std::string name, Shape shape, Init init = init::zeros(), Where where = Where::current());
  ~Parameter();
  Parameter(const Parameter &) = delete;
  Parameter &operator=(const Parameter &) = delete;

  operator Tensor() const { return tensor(); }
  Tensor tensor(Where where = Where::current()) const;
  const Shape &shape() const { return sizes; }
  const std::string &name() const { return ownName; }
  /// Module path, for example "fc1.weight".
  std::string path() const;
  const InitValues &initial() const { return begin; }
  int64_t elements() const;

  /// Source location in the user's program at which the parameter was created.
  Where place() const { return made; }

  /// Begins with other values than the layer's, as by PyTorch's torch.nn.init.
  Parameter &initialise(Init init) {
    begin = init.resolve(sizes);
    return *this;
  }
  /// A frozen parameter gets no gradient and no update.
  Parameter &requiresGrad(bool on) {
    trains = on;
    return *this;
  }
  bool requiresGrad() const { return trains; }

private:
  Module *owner;
  std::string ownName;
  Shape sizes;
  InitValues begin;
  bool trains = true;
  Where made;
};

/// State that is not trained, for example a running mean. Training may update it once per microbatch.
class Buffer {
public:
  /// Rules as for Parameter (rules buffer C1 and C2).
  Buffer(Module &owner, std::string name, Shape shape, Init init = init::zeros(), Where where = Where::current());
  ~Buffer();
  Buffer(const Buffer &) = delete;
  Buffer &operator=(const Buffer &) = delete;

  operator Tensor() const { return tensor(); }
  /// The current value at this point of the trace.
  Tensor tensor(Where where = Where::current()) const;
  /// Sets the value from this point of the trace on; does nothing in evaluation, or if the buffer is frozen. The shape
  /// and element type must be the buffer's (rule buffer C3).
  void set(Tensor value, Where where = Where::current());
  /// A frozen buffer keeps its value: `set` does nothing. A batch norm whose statistics are frozen uses them in
  /// training too.
  Buffer &freeze() {
    moves = false;
    return *this;
  }
  bool frozen() const { return !moves; }
  const Shape &shape() const { return sizes; }
  const std::string &name() const { return ownName; }
  std::string path() const;
  const InitValues &initial() const { return begin; }

private:
  Module *owner;
  std::string ownName;
  Shape sizes;
  InitValues begin;
  bool moves = true;
};

class Module {
public:
  /// The root module of a model; its path is empty.
  explicit Module(Where where = Where::current());
  /// A child of `parent`. The name is unique in its parent, is not empty and has no dots, stars, quotes or spaces (rule
  /// module C1).
  Module(Module &parent, std::string name, Where where = Where::current());
  virtual ~Module();
  Module(const Module &) = delete;
  Module &operator=(const Module &) = delete;

  /// The module's computation: override one of these. (A root module may define a forward of up to 16 tensors.)
  virtual Tensor forward(Tensor x);
  virtual Tensor forward(Tensor x, Tensor y);
  virtual Tensor forward(Tensor x, Tensor y, Tensor z);

  /// Runs forward and sets this module's path on its ops.
  Tensor operator()(Tensor x, Where where = Where::current());
  Tensor operator()(Tensor x, Tensor y, Where where = Where::current());
  Tensor operator()(Tensor x, Tensor y, Tensor z, Where where = Where::current());

  /// "blocks.0.attention"; empty for the root.
  std::string path() const;
  const std::string &name() const { return ownName; }
  /// Freezes every parameter and buffer of this module and its children, as they are now: training does not change
  /// them, and batch norms use their running statistics. (Dropout stays. PyTorch's requires_grad_(False) without eval()
  /// lets running statistics move; for this, call requiresGrad(false) for each of parameters().)
  Module &freeze();
  /// All parameters, depth first in the order of definition.
  std::vector<Parameter *> parameters() const;
  std::vector<Buffer *> buffers() const;
  /// Number of elements of all parameters, including frozen ones.
  int64_t parameterCount() const;
  const std::vector<Module *> &children() const { return childList; }

private:
  friend class Parameter;
  friend class Buffer;
  void takeName(const std::string &name, const char *rule, Where where);
  Where place; ///< source location at which the module was created
  void collect(std::vector<Parameter *> *parameters, std::vector<Buffer *> *buffers) const;

  Module *parent = nullptr;
  std::string ownName;
  std::set<std::string> names;
  int64_t parts = 0; ///< root only: number of modules, parameters and buffers of the model
  std::vector<Module *> childList;
  /// Parameters, buffers and children in the order of definition (exactly one pointer is set).
  struct Member {
    Parameter *parameter = nullptr;
    Buffer *buffer = nullptr;
    Module *child = nullptr;
  };
  std::vector<Member> members;
};

/// Sets a module's path on all ops created during the lifetime of this object.
class ModuleCall {
public:
  ModuleCall(const Module &module, Where where);
  ~ModuleCall();
  ModuleCall(const ModuleCall &) = delete;
};

/// A module whose forward returns something other than one Tensor, for example
///
///   struct TwoHeads : ModuleOf<std::pair<Tensor, Tensor>> {
///     Linear body{*this, "body", 784, 64}, digit{*this, "digit", 64, 10}, size{*this, "size", 64, 1};
///     std::pair<Tensor, Tensor> forward(Tensor x) {
///       x = relu(body(flatten(x, 1)));
///       return {digit(x), size(x)};
///     }
///   };
///
/// A ModuleOf can be used wherever a Module is expected: as a parent, as a model.
template <class Result> class ModuleOf {
public:
  explicit ModuleOf(Where where = Where::current()) : tree(where) {}
  ModuleOf(Module &parent, std::string name, Where where = Where::current()) : tree(parent, std::move(name), where) {}
  virtual ~ModuleOf() = default;
  ModuleOf(const ModuleOf &) = delete;
  ModuleOf &operator=(const ModuleOf &) = delete;

  operator Module &() { return tree; }
  Module &module() { return tree; }

  /// Override one of these.
  virtual Result forward(Tensor x) { return tree.forward(x), Result(); }
  virtual Result forward(Tensor x, Tensor y) { return tree.forward(x, y), Result(); }
  virtual Result forward(Tensor x, Tensor y, Tensor z) { return tree.forward(x, y, z), Result(); }

  Result operator()(Tensor x, Where where = Where::current()) {
    ModuleCall call(tree, where);
    return forward(x);
  }
  Result operator()(Tensor x, Tensor y, Where where = Where::current()) {
    ModuleCall call(tree, where);
    return forward(x, y);
  }
  Result operator()(Tensor x, Tensor y, Tensor z, Where where = Where::current()) {
    ModuleCall call(tree, where);
    return forward(x, y, z);
  }

private:
  Module tree;
};

/// Source location of the innermost module call that is running. Layers use it as the location of their ops.
Where callSite();

namespace internal {
/// Sets `where` as the source location of modules that the standard library constructs during the lifetime of this
/// object.
class ConstructionSite {
public:
  explicit ConstructionSite(Where where);
  ~ConstructionSite();
  ConstructionSite(const ConstructionSite &) = delete;
};
} // namespace internal

/// An index into a list of modules, with its source location.
struct ListIndex {
  template <std::integral I> ListIndex(I number, Where where = Where::current()) // NOLINT: implicit
      : number(static_cast<int64_t>(number)), where(where) {}
  int64_t number;
  Where where;
};

namespace internal {
/// Returns the index if it is within a list of `size` modules; otherwise throws a user error.
size_t checkedIndex(const Module &list, ListIndex index, int64_t size);
} // namespace internal

/// A list of modules of one type, with paths "name.0", "name.1", ...; T's constructor takes (Module &, std::string,
/// ...).
template <class T> class ModuleList : public Module {
public:
  ModuleList(Module &parent, std::string name, Where where = Where::current())
      : Module(parent, std::move(name), where) {}
  /// Creates `count` modules with the same arguments.
  template <class... Args>
  ModuleList(Module &parent, std::string name, int64_t count, const Args &...args) : Module(parent, std::move(name)) {
    for (int64_t i = 0; i < count; ++i)
      append(args...);
  }

  /// Appends a module created with these arguments. (One overload per number of arguments, so that errors show the line
  /// of the call.)
  T &emplace(Where where = Where::current()) {
    const internal::ConstructionSite site(where);
    return append();
  }
  template <class A> T &emplace(A &&a, Where where = Where::current()) {
    const internal::ConstructionSite site(where);
    return append(std::forward<A>(a));
  }
  template <class A, class B> T &emplace(A &&a, B &&b, Where where = Where::current()) {
    const internal::ConstructionSite site(where);
    return append(std::forward<A>(a), std::forward<B>(b));
  }
  template <class A, class B, class C> T &emplace(A &&a, B &&b, C &&c, Where where = Where::current()) {
    const internal::ConstructionSite site(where);
    return append(std::forward<A>(a), std::forward<B>(b), std::forward<C>(c));
  }
  template <class A, class B, class C, class D> T &emplace(A &&a, B &&b, C &&c, D &&d, Where where = Where::current()) {
    const internal::ConstructionSite site(where);
    return append(std::forward<A>(a), std::forward<B>(b), std::forward<C>(c), std::forward<D>(d));
  }
  template <class A, class B, class C, class D, class E>
  T &emplace(A &&a, B &&b, C &&c, D &&d, E &&e, Where where = Where::current()) {
    const internal::ConstructionSite site(where);
    return append(std::forward<A>(a), std::forward<B>(b), std::forward<C>(c), std::forward<D>(d), std::forward<E>(e));
  }
  template <class A, class B, class C, class D, class E, class F>
  T &emplace(A &&a, B &&b, C &&c, D &&d, E &&e, F &&f, Where where = Where::current()) {
    const internal::ConstructionSite site(where);
    return append(std::forward<A>(a), std::forward<B>(b), std::forward<C>(c), std::forward<D>(d), std::forward<E>(e),
                  std::forward<F>(f));
  }
  template <class A, class B, class C, class D, class E, class F, class G, class... More>
  requires(!std::is_same_v<std::remove_cvref_t<G>, Where>) T &emplace(A &&a, B &&b, C &&c, D &&d, E &&e, F &&f, G &&g,
                                                                      More &&...more) {
    return append(std::forward<A>(a), std::forward<B>(b), std::forward<C>(c), std::forward<D>(d), std::forward<E>(e),
                  std::forward<F>(f), std::forward<G>(g), std::forward<More>(more)...);
  }
  T &operator[](ListIndex i) { return list[internal::checkedIndex(*this, i, size())]; }
  int64_t size() const { return static_cast<int64_t>(list.size()); }
  auto begin() { return list.begin(); }
  auto end() { return list.end(); }

  /// Applies the modules in order. Throws a user error unless each takes and returns one tensor.
  Tensor forward(Tensor x) override {
    if constexpr (std::is_invocable_r_v<Tensor, T &, Tensor>) {
      for (T &module : list)
        x = module(x, callSite());
      return x;
    } else
      return Module::forward(x); // throws the user error
  }

private:
  template <class... Args> T &append(Args &&...args) {
    return list.emplace_back(static_cast<Module &>(*this), std::to_string(list.size()), std::forward<Args>(args)...);
  }
  std::deque<T> list;
};

} // namespace cleave
