// Lower bounds: the memory's rows are priced into the costs (Lagrange multipliers), and costs are moved between nodes
// and edges by messages so that the sum of every node's and every edge's least cost, which no assignment can go below,
// grows. Messages: sequential tree-reweighted message passing (Kolmogorov, PAMI 2006). Prices: subgradient steps.
#pragma once
#include "partitioner/solver/Model.h"

namespace cleave::partitioner {

class Dual {
public:
  explicit Dual(const Model &model);

  /// One sweep over all nodes forwards and one backwards.
  void sweep();
  /// Moves the prices along the memory that the choices use that look best now; `step`: the change of the bound that
  /// the whole change would make if those choices stayed the best ones.
  void movePrices(double step);
  /// The bound above the model's base, up to rounding. After sweep().
  double value();
  /// The costs of a node's choices with the prices and all messages that it received.
  void nodeCosts(uint32_t v, std::vector<double> &out) const;
  /// The message to `v` along one of its links.
  void message(const ModelLink &link, uint32_t v, std::vector<double> &out) const;

  /// Puts prices and messages into a core that the model was made of, rounded to whole numbers: costs become the
  /// amounts by which they exceed the bound, and the bound becomes the base. Valid whatever was rounded.
  void applyTo(Core &core);

  struct State {
    std::vector<double> prices, messages;
  };
  void setState(const State &to);
  State state; // prices: what each row's price changes by; messages: see places

private:
  struct Place {
    size_t toA, toB; // in messages: from edge e to its node a, and to b
  };
  void price();
  void pass(bool forwards);
  void share();
  const double *received(const ModelLink &link, uint32_t v) const;

  const Model &model;
  std::vector<Place> places;
  std::vector<double> tables, priced; // priced: costs with prices
  std::vector<double> given;          // what nodes gave to their edges, in the order of messages
  std::vector<double> costs, load;    // scratch
};

/// Improves a bound step by step, and keeps the best.
class Ascent {
public:
  explicit Ascent(const Model &model) : dual(model), best(dual.value()), state(dual.state) {}
  /// One sweep, and a change of prices. `gap`: what the bound is expected to reach.
  void step(double gap);
  /// The best bound above the model's base, up to rounding.
  double value() const { return best; }
  /// Goes back to the best messages and prices.
  void rewind() { dual.setState(state); }

  Dual dual;

private:
  double best, scale = 1; // scale: of the steps of prices
  Dual::State state;
  unsigned worse = 0; // steps since the best
};

} // namespace cleave::partitioner
