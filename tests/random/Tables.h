// Tables of what can be drawn: one entry per op, layer and loss, with functions that draw its arguments, call it, and
// print the call. A new function of the DSL needs a new entry.
#pragma once
#include "tests/random/Drawing.h"
#include "tests/random/Instance.h"

namespace cleave::random_models {

/// A node and its operands while the node is interpreted.
struct Call {
  const Node &node;
  Instance &self;
  std::vector<Tensor> in;
  int64_t i(size_t at) const { return node.ints.at(at); }
  double r(size_t at) const { return node.reals.at(at); }
};

/// `print` is a template of the C++ call. Placeholders: $0 ... $9 operands, $* all operands, $i0 an entry of ints, $I
/// all ints as {1, 2}, $J all but the first, $K all but the first two, $r0 an entry of reals, $R all reals as
/// {0.5, 1.0}, $w0 a word in quotes, $W all words as {"a", "b"}, $m the member, $M0 the member with number ints[0], $A
/// [index] for a module of a list, $P a parameter of the member.
struct OpKind {
  std::string name;
  double weight; ///< relative frequency; 0: only drawn as part of other kinds
  bool exact;    ///< on small whole numbers the result does not depend on the order of computation
  std::string print;
  Tensor (*emit)(const Call &call);
  bool (*draw)(Drawing &draw, const OpKind &self); ///< adds nodes; false: nothing fits
};
const std::vector<OpKind> &opKinds();
const OpKind &opKind(const std::string &name);

/// A layer of the library. `print` is a template of its constructor's arguments after parent and name.
struct LayerKind {
  std::string name;
  double weight;
  bool exact;
  std::string print;
  std::unique_ptr<Module> (*make)(Module &parent, const Part &member);
  /// Fills in sizes so that the layer accepts `x`; false if that is not possible.
  bool (*fit)(Drawing &draw, Tensor x, Part &member);
};
const std::vector<LayerKind> &layerKinds();
const LayerKind *layerKind(const std::string &name);

struct LossKind {
  std::string name;
  double weight;
  bool exact;
  std::string print; ///< C++ of the loss in TrainConfig
  Loss (*emit)(Tensor prediction, Tensor target);
  bool labels; ///< the target holds classes; otherwise numbers of the prediction's shape
};
const std::vector<LossKind> &lossKinds();
const LossKind &lossKind(const std::string &name);

} // namespace cleave::random_models
