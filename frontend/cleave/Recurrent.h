// Recurrent layers, unrolled during tracing. Every time step consists of the same ops, so the steps share their
// kernels. Batch first: sequences are [batch, positions, features]. Parameters, gates and initial values are PyTorch's:
// weight_ih_l0 [gates hidden, in], weight_hh_l0 [gates hidden, hidden], bias_ih_l0 and bias_hh_l0 [gates hidden], all
// from U(-1/sqrt(hidden), 1/sqrt(hidden)); further layers have the suffixes _l1, _l2, ... A bidirectional layer also
// processes its input in reverse, with parameters that end in _reverse. Features and states of both directions are
// concatenated, so the next layer's input has 2 hidden features.
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

/// Base class of recurrent layers: `gates` rows of weights per hidden unit.
class Recurrent : public Module {
public:
  struct Layer {
    Layer(Module &owner, const std::string &suffix, int64_t in, int64_t hidden, int64_t gates, bool bias, Where where);
    Parameter weightIh, weightHh;
    std::optional<Parameter> biasIh, biasHh;
  };
  std::deque<Layer> layers; ///< if bidirectional: forward and reverse of layer 0, then of layer 1, ...

protected:
  Recurrent(Module &parent, std::string name, int64_t in, int64_t hidden, int64_t gates, RecurrentOptions options,
            Where where);
  /// Checks rule C1 of `op`: x is [b, t, in]; and rule C2: a state is [layers, b, hidden], or [2 layers, b, hidden] if
  /// bidirectional.
  void check(const char *op, Tensor x, std::initializer_list<Tensor> states, Where where) const;
  /// Runs `cell` over all positions of all layers. `cell` takes the input part of a step [b, gates hidden] and the
  /// state tensors, which are empty before the first step. Returns the last layer's sequence and updates `states` to
  /// the final states of all layers.
  Tensor run(Tensor x, std::vector<Tensor> &states, Where where,
             const std::function<void(Layer &, Tensor, std::vector<Tensor> &)> &cell);

  int64_t in, hidden, gates, directions;
  double dropoutOf;

private:
  /// Runs one layer in one direction. Returns its sequence [b, t, hidden]; updates the state `now`.
  Tensor runLayer(Layer &layer, Tensor x, bool backwards, std::vector<Tensor> &now, Where where,
                  const std::function<void(Layer &, Tensor, std::vector<Tensor> &)> &cell);
};

/// h and c, each [layers, b, hidden]; if bidirectional [2 layers, b, hidden], ordered by layer, then direction.
struct LstmState {
  Tensor h, c;
};
struct LstmOutput {
  Tensor output; ///< h of the last layer at every position: [b, t, hidden]; if bidirectional [b, t, 2 hidden]
  LstmState state;
  operator Tensor() const { return output; }
};

/// Long short-term memory (Hochreiter and Schmidhuber 1997), gates in the order i, f, g, o. C1: the input is [b, t,
/// in]. C2: a state has LstmState's shapes. C3: sizes and layers are positive, 0 <= dropout < 1.
class LSTM : public Recurrent {
public:
  LSTM(Module &parent, std::string name, int64_t in, int64_t hidden, RecurrentOptions options = {},
       Where where = Where::current());
  /// Starts from zeros and returns only the output.
  Tensor forward(Tensor x) override;
  /// Starts from zeros, or from a given state, and returns the output and the final state.
  LstmOutput operator()(Tensor x, Where where = Where::current()) { return (*this)(x, LstmState(), where); }
  LstmOutput operator()(Tensor x, LstmState state, Where where = Where::current());
};

struct GruOutput {
  Tensor output; ///< as in LstmOutput
  Tensor h;      ///< as in LstmState
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
