// Layers over time, unrolled while the model is traced: every step is made of the same ops, so that the steps share
// their kernels. Batch first: sequences are [batch, positions, features]. Parameters, gates and beginnings are
// PyTorch's: weight_ih_l0 [gates hidden, in], weight_hh_l0 [gates hidden, hidden], bias_ih_l0 and bias_hh_l0
// [gates hidden], all from U(-1/sqrt(hidden), 1/sqrt(hidden)); the next layers end in _l1, _l2, ... A bidirectional one
// reads every layer's input from the end, too, with parameters that end in _reverse; features and states of the two
// directions lie one after the other, so that the next layer's input is 2 hidden wide.
#pragma once
#include "cleave/Module.h"

#include <deque>
#include <functional>
#include <initializer_list>

namespace cleave {

struct RecurrentOptions {
  int64_t layers = 1;
  bool bias = true;
  double dropout = 0; ///< between layers, in training
  bool bidirectional = false;
};

/// What layers over time have in common: `gates` rows of weights for each hidden unit.
class Recurrent : public Module {
public:
  struct Layer {
    Layer(Module &owner, const std::string &suffix, int64_t in, int64_t hidden, int64_t gates, bool bias, Where where);
    Parameter weightIh, weightHh;
    std::optional<Parameter> biasIh, biasHh;
  };
  std::deque<Layer> layers; ///< where bidirectional, each forwards, then backwards

protected:
  Recurrent(Module &parent, std::string name, int64_t in, int64_t hidden, int64_t gates, RecurrentOptions options,
            Where where);
  /// Rule C1: x is [b, t, in]. Rule C2: a state is [layers, b, hidden]; twice the layers where bidirectional.
  void check(const char *op, Tensor x, std::initializer_list<Tensor> states, Where where) const;
  /// Runs `cell` (input part [b, gates hidden] of a step; the state's tensors, empty ones before the first step) over
  /// all positions of all layers. Gives the last layer's sequence, and moves `states` to the last of each.
  Tensor run(Tensor x, std::vector<Tensor> &states, Where where,
             const std::function<void(Layer &, Tensor, std::vector<Tensor> &)> &cell);

  int64_t in, hidden, gates, directions;
  double dropoutOf;

private:
  /// One layer in one direction: its sequence [b, t, hidden]; `now` moves from the state before it to the one after.
  Tensor runLayer(Layer &layer, Tensor x, bool backwards, std::vector<Tensor> &now, Where where,
                  const std::function<void(Layer &, Tensor, std::vector<Tensor> &)> &cell);
};

/// h and c, each [layers, b, hidden]; where bidirectional [2 layers, b, hidden], each layer's forwards, then backwards.
struct LstmState {
  Tensor h, c;
};
struct LstmOutput {
  Tensor output; ///< h of the last layer at every position: [b, t, hidden]; where bidirectional [b, t, 2 hidden]
  LstmState state;
  operator Tensor() const { return output; }
};

/// Long short-term memory (Hochreiter and Schmidhuber 1997), gates in the order i, f, g, o. C1: the input is
/// [b, t, in]. C2: a state is as LstmState says. C3: sizes and layers are positive, 0 <= dropout < 1.
class LSTM : public Recurrent {
public:
  LSTM(Module &parent, std::string name, int64_t in, int64_t hidden, RecurrentOptions options = {},
       Where where = Where::current());
  /// The output alone.
  Tensor forward(Tensor x) override;
  /// From zeros, or from a state.
  LstmOutput operator()(Tensor x, Where where = Where::current()) { return (*this)(x, LstmState(), where); }
  LstmOutput operator()(Tensor x, LstmState state, Where where = Where::current());
};

struct GruOutput {
  Tensor output; ///< as LstmOutput's
  Tensor h;      ///< as LstmState's
  operator Tensor() const { return output; }
};

/// Gated recurrent unit (Cho et al. 2014), gates in the order r, z, n; rules as LSTM.
class GRU : public Recurrent {
public:
  GRU(Module &parent, std::string name, int64_t in, int64_t hidden, RecurrentOptions options = {},
      Where where = Where::current());
  Tensor forward(Tensor x) override;
  GruOutput operator()(Tensor x, Where where = Where::current()) { return (*this)(x, Tensor(), where); }
  GruOutput operator()(Tensor x, Tensor h, Where where = Where::current());
};

} // namespace cleave
