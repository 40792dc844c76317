// What can be drawn: one entry per op, layer and loss, with functions that draw its arguments, call it, and print the
// call. A new function of the DSL needs one more entry.
#pragma once
#include "tests/random/Drawing.h"
#include "tests/random/Instance.h"

namespace cleave::random_models {

/// A node at the moment of being interpreted.
struct Call {
  const Node &node;
  Instance &self;
  std::vector<Tensor> in;
  int64_t i(size_t at) const { return node.ints.at(at); }
  double r(size_t at) const { return node.reals.at(at); }
};

/// `print`: C++ of the call, where $0 ... $9 stand for operands, $* for all of them, $i0 for a whole number, $I for all as
/// {1, 2}, $J for all but the first, $K for all but two, $r0 for a number, $R for all as {0.5, 1.0}, $w0 for a word in quotes, $W for all as
/// {"a", "b"}, $m for the member.
struct OpKind {
  std::string name;
  double weight; ///< how often it is drawn; 0: only as a part of others
  bool exact;    ///< on small whole numbers the result is the same in whatever order it is computed
  std::string print;
  Tensor (*emit)(const Call &call);
  bool (*draw)(Drawing &draw, const OpKind &self); ///< adds nodes; false: nothing fits
};
const std::vector<OpKind> &opKinds();
const OpKind &opKind(const std::string &name);

/// A layer of the library. `print`: of its constructor's arguments after parent and name.
struct LayerKind {
  std::string name;
  double weight;
  bool exact;
  std::string print;
  std::unique_ptr<Module> (*make)(Module &parent, const Part &member);
  /// Fills in sizes so that it takes `x`; false: it cannot.
  bool (*fit)(Drawing &draw, Tensor x, Part &member);
};
const std::vector<LayerKind> &layerKinds();
const LayerKind *layerKind(const std::string &name);

struct LossKind {
  std::string name;
  double weight;
  bool exact;
  std::string print; ///< of the TrainConfig's entry
  Loss (*emit)(Tensor prediction, Tensor target);
  bool labels; ///< the target holds classes; otherwise numbers of the prediction's shape
};
const std::vector<LossKind> &lossKinds();
const LossKind &lossKind(const std::string &name);

} // namespace cleave::random_models
