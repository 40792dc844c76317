// LSTM and GRU, unrolled. One matrix product per layer covers the inputs of all steps; each step adds the product with
// its state. The reverse direction runs the same steps in the opposite order.
#include "cleave/Recurrent.h"
#include "cleave/Functional.h"
#include "frontend/trace/Diagnose.h"
#include "frontend/trace/Trace.h"

#include <cmath>
#include <fmt/format.h>

namespace cleave {

static Init byHidden(int64_t hidden) {
  const double bound = 1 / std::sqrt(static_cast<double>(hidden));
  return init::uniform(-bound, bound);
}

Recurrent::Layer::Layer(Module &owner, const std::string &suffix, int64_t in, int64_t hidden, int64_t gates, bool bias,
                        Where where)
    : weightIh(owner, "weight_ih_" + suffix, {gates * hidden, in}, byHidden(hidden), where),
      weightHh(owner, "weight_hh_" + suffix, {gates * hidden, hidden}, byHidden(hidden), where) {
  if (!bias)
    return;
  biasIh.emplace(owner, "bias_ih_" + suffix, Shape{gates * hidden}, byHidden(hidden), where);
  biasHh.emplace(owner, "bias_hh_" + suffix, Shape{gates * hidden}, byHidden(hidden), where);
}

Recurrent::Recurrent(Module &parent, std::string name, int64_t in, int64_t hidden, int64_t gates, RecurrentOptions o,
                     Where where)
    : Module(parent, name, where), in(in), hidden(hidden), gates(gates), directions(o.bidirectional ? 2 : 1),
      dropoutOf(o.dropout) {
  if (in < 1 || hidden < 1 || o.layers < 1 || !(o.dropout >= 0 && o.dropout < 1))
    failRule(
        gates == 4 ? "lstm" : "gru", 3,
        fmt::format("{}: sizes and layers must be positive and the dropout in [0, 1), found {} to {}, {} layers, {}",
                    name, in, hidden, o.layers, o.dropout),
        {}, where);
  for (int64_t i = 0; i < o.layers; ++i)
    for (const char *direction : {"", "_reverse"})
      if (o.bidirectional || !*direction)
        layers.emplace_back(*this, fmt::format("l{}{}", i, direction), i ? directions * hidden : in, hidden, gates,
                            o.bias, where);
}

void Recurrent::check(const char *op, Tensor x, std::initializer_list<Tensor> states, Where where) const {
  if (x.rank() != 3 || x.size(2) != in)
    failRule(op, 1, fmt::format("the input must be [batch, positions, {}]", in), {fact(x, "input")}, where);
  const Shape expected{static_cast<int64_t>(layers.size()), x.size(0), hidden};
  for (Tensor state : states)
    if (state.defined() && (state.shape() != expected || state.dtype() != x.dtype()))
      failRule(op, 2, fmt::format("the state must have shape {} and the input's element type", shapeText(expected)),
               {fact(x, "input"), fact(state, "state")}, where);
}

static Tensor given(const std::optional<Parameter> &p, Where where) { return p ? p->tensor(where) : Tensor(); }

Tensor Recurrent::runLayer(Layer &layer, Tensor x, bool backwards, std::vector<Tensor> &now, Where where,
                           const std::function<void(Layer &, Tensor, std::vector<Tensor> &)> &cell) {
  const Tensor inputs = linear(x, layer.weightIh.tensor(where), given(layer.biasIh, where), where);
  const int64_t steps = x.size(1);
  std::vector<Tensor> sequence(static_cast<size_t>(steps));
  for (int64_t step = 0; step < steps; ++step) {
    const int64_t t = backwards ? steps - 1 - step : step;
    cell(layer, select(inputs, 1, t, where), now);
    sequence[static_cast<size_t>(t)] = unsqueeze(now[0], 1, where);
  }
  return concat(sequence, 1, where);
}

Tensor Recurrent::run(Tensor x, std::vector<Tensor> &states, Where where,
                      const std::function<void(Layer &, Tensor, std::vector<Tensor> &)> &cell) {
  std::vector<std::vector<Tensor>> last(states.size()); // [state][layer]
  for (size_t l = 0; l < layers.size(); l += static_cast<size_t>(directions)) {
    if (l > 0)
      x = dropout(x, dropoutOf, where);
    std::vector<Tensor> sequences; // one per direction
    for (int64_t direction = 0; direction < directions; ++direction) {
      const size_t at = l + static_cast<size_t>(direction);
      std::vector<Tensor> now;
      for (Tensor state : states)
        now.push_back(state.defined() ? select(state, 0, static_cast<int64_t>(at), where) : Tensor());
      sequences.push_back(runLayer(layers[at], x, direction == 1, now, where, cell));
      for (size_t s = 0; s < states.size(); ++s)
        last[s].push_back(unsqueeze(now[s], 0, where));
    }
    x = directions == 2 ? concat(sequences, 2, where) : sequences[0];
  }
  for (size_t s = 0; s < states.size(); ++s)
    states[s] = concat(last[s], 0, where);
  return x;
}

/// The state's contribution to a step: [b, gates hidden]. Before the first step the state is zero, so this is the bias,
/// or empty if there is none.
static Tensor stateProduct(Recurrent::Layer &layer, Tensor h, Where where) {
  const Tensor bias = given(layer.biasHh, where);
  return h.defined() ? linear(h, layer.weightHh.tensor(where), bias, where) : bias;
}

/// Gate `i` of [b, gates hidden] or [gates hidden].
static Tensor gate(Tensor packed, int64_t i, int64_t gates, Where where) {
  Shape shape = packed.shape();
  const int64_t hidden = shape.back() / gates;
  shape.back() = gates;
  shape.push_back(hidden);
  return select(reshape(packed, shape, where), -2, i, where);
}

// ---- LSTM -----------------------------------------------------------------------------------------------------------

LSTM::LSTM(Module &parent, std::string name, int64_t in, int64_t hidden, RecurrentOptions options, Where where)
    : Recurrent(parent, std::move(name), in, hidden, 4, options, where) {}

Tensor LSTM::forward(Tensor x) { return (*this)(x, callSite()).output; }

LstmOutput LSTM::operator()(Tensor x, LstmState state, Where where) {
  PathScope scope(Trace::current("lstm", where), path(), where);
  check("lstm", x, {state.h, state.c}, where);
  std::vector<Tensor> states{state.h, state.c};
  const Tensor output = run(x, states, where, [&](Layer &layer, Tensor input, std::vector<Tensor> &now) {
    Tensor &h = now[0], &c = now[1];
    if (const Tensor product = stateProduct(layer, h, where); product.defined())
      input = Operand(input, where) + product;
    const Tensor i = sigmoid(gate(input, 0, 4, where), where), f = sigmoid(gate(input, 1, 4, where), where),
                 g = cleave::tanh(gate(input, 2, 4, where), where), o = sigmoid(gate(input, 3, 4, where), where);
    const Tensor added = Operand(i, where) * g;
    c = c.defined() ? Operand(Operand(f, where) * c, where) + added : added;
    h = Operand(o, where) * cleave::tanh(c, where);
  });
  return {output, {states[0], states[1]}};
}

// ---- GRU ------------------------------------------------------------------------------------------------------------

GRU::GRU(Module &parent, std::string name, int64_t in, int64_t hidden, RecurrentOptions options, Where where)
    : Recurrent(parent, std::move(name), in, hidden, 3, options, where) {}

Tensor GRU::forward(Tensor x) { return (*this)(x, callSite()).output; }

GruOutput GRU::operator()(Tensor x, Tensor state, Where where) {
  PathScope scope(Trace::current("gru", where), path(), where);
  check("gru", x, {state}, where);
  std::vector<Tensor> states{state};
  const Tensor output = run(x, states, where, [&](Layer &layer, Tensor input, std::vector<Tensor> &now) {
    Tensor &h = now[0];
    const Tensor product = stateProduct(layer, h, where);
    const auto sum = [&](int64_t i) -> Tensor {
      const Tensor own = gate(input, i, 3, where);
      return product.defined() ? Operand(own, where) + gate(product, i, 3, where) : own;
    };
    const Tensor r = sigmoid(sum(0), where), z = sigmoid(sum(1), where);
    Tensor n = gate(input, 2, 3, where);
    if (product.defined())
      n = Operand(n, where) + Operand(r, where) * gate(product, 2, 3, where);
    n = cleave::tanh(n, where);
    h = h.defined() ? Operand(n, where) + Operand(z, where) * (Operand(h, where) - n)
                    : Operand(n, where) - Operand(z, where) * n;
  });
  return {output, states[0]};
}

} // namespace cleave
