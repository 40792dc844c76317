// Message passing and prices.
#include "partitioner/solver/Dual.h"

#include <cmath>

namespace cleave::partitioner {
namespace {

constexpr double huge = 1e30; // a forbidden cost; larger than any other

} // namespace

Dual::Dual(const Model &model) : model(model), tables(model.tables.size()), priced(model.costs.size()) {
  state.prices.assign(model.room.size(), 0);
  for (size_t k = 0; k < tables.size(); ++k)
    tables[k] = model.tables[k] >= forbidden ? huge : double(model.tables[k]);
  size_t at = 0;
  for (const ModelEdge &edge : model.edges) {
    places.push_back({at, at + model.choices[edge.a]});
    at += model.choices[edge.a] + model.choices[edge.b];
  }
  state.messages.assign(at, 0);
  price();
}

void Dual::price() {
  std::vector<double> sums(state.prices.size() + 1, 0);
  for (size_t row = 0; row < state.prices.size(); ++row)
    sums[row + 1] = sums[row] + state.prices[row];
  for (size_t k = 0; k < priced.size(); ++k)
    priced[k] = double(model.costs[k]);
  for (uint32_t v = 0; v < model.nodes(); ++v)
    for (const ModelPiece &piece : model.pieces[v])
      if (const double price = sums[piece.end] - sums[piece.begin]; price != 0)
        for (uint32_t i = 0; i < model.choices[v]; ++i)
          priced[model.first[v] + i] += price * double(model.uses[piece.use + i]);
}

const double *Dual::received(const ModelLink &link, uint32_t v) const {
  const Place &place = places[link.edge];
  return &state.messages[model.edges[link.edge].a == v ? place.toA : place.toB];
}

void Dual::nodeCosts(uint32_t v, std::vector<double> &out) const {
  const double *own = &priced[model.first[v]];
  out.assign(own, own + model.choices[v]);
  for (const ModelLink &link : model.links[v]) {
    const double *in = received(link, v);
    for (size_t i = 0; i < out.size(); ++i)
      out[i] += in[i];
  }
}

void Dual::message(const ModelLink &link, uint32_t v, std::vector<double> &out) const {
  const double *in = received(link, v);
  out.assign(in, in + model.choices[v]);
}

void Dual::pass(bool forwards) {
  for (uint32_t k = 0; k < model.nodes(); ++k) {
    const uint32_t v = forwards ? k : model.nodes() - 1 - k;
    size_t ahead = 0;
    for (const ModelLink &link : model.links[v])
      ahead += forwards == (link.node > v);
    if (ahead == 0)
      continue;
    nodeCosts(v, costs);
    const double share = 1.0 / double(std::max(ahead, model.links[v].size() - ahead));
    for (const ModelLink &link : model.links[v]) {
      if (forwards != (link.node > v))
        continue;
      const double *in = received(link, v);
      double *to = const_cast<double *>(received({link.edge, v, 0}, link.node));
      const size_t count = model.choices[link.node];
      std::fill(to, to + count, huge);
      for (size_t i = 0; i < costs.size(); ++i) {
        if (in[i] >= huge / 2)
          continue; // this choice has no partner
        const double own = share * costs[i] - in[i];
        const double *row = &tables[link.table + i * count];
        for (size_t j = 0; j < count; ++j)
          to[j] = std::min(to[j], own + row[j]);
      }
      const double least = *std::min_element(to, to + count);
      for (size_t j = 0; j < count; ++j)
        to[j] = to[j] >= huge / 2 ? huge : to[j] - least;
    }
  }
}

void Dual::sweep() {
  pass(true);
  pass(false);
}

/// What nodes give to the edges of earlier nodes, so that the sum of least costs is the bound of the last pass.
void Dual::share() {
  given.assign(state.messages.size(), 0);
  for (uint32_t v = 0; v < model.nodes(); ++v) {
    size_t back = 0;
    for (const ModelLink &link : model.links[v])
      back += link.node < v;
    if (back == 0)
      continue;
    nodeCosts(v, costs);
    double least = huge;
    for (double &cost : costs)
      least = std::min(least, cost = std::min(cost, huge));
    const double part = 1.0 / double(std::max(back, model.links[v].size() - back));
    for (const ModelLink &link : model.links[v])
      if (link.node < v) {
        double *to = &given[size_t(received(link, v) - state.messages.data())];
        for (size_t i = 0; i < costs.size(); ++i)
          to[i] = (costs[i] - least) * part;
      }
  }
}

double Dual::value() {
  share();
  double sum = 0;
  for (size_t row = 0; row < state.prices.size(); ++row)
    sum -= state.prices[row] * double(model.room[row]);
  for (uint32_t v = 0; v < model.nodes(); ++v) {
    nodeCosts(v, costs);
    sum += *std::min_element(costs.begin(), costs.end()); // the shares do not change the least
  }
  for (uint32_t e = 0; e < model.edges.size(); ++e) {
    const ModelEdge &edge = model.edges[e];
    const double *toA = &state.messages[places[e].toA], *toB = &state.messages[places[e].toB];
    const double *givenA = &given[places[e].toA], *givenB = &given[places[e].toB];
    costs.resize(model.choices[edge.b]);
    for (size_t j = 0; j < costs.size(); ++j)
      costs[j] = givenB[j] - toB[j];
    double least = huge;
    const double *table = &tables[edge.ab];
    for (size_t i = 0; i < model.choices[edge.a]; ++i, table += costs.size()) {
      double row = huge;
      for (size_t j = 0; j < costs.size(); ++j)
        row = std::min(row, table[j] + costs[j]);
      least = std::min(least, row + givenA[i] - toA[i]);
    }
    sum += least;
  }
  return sum;
}

void Dual::movePrices(double step) {
  load.assign(state.prices.size() + 1, 0);
  for (uint32_t v = 0; v < model.nodes(); ++v) {
    if (model.pieces[v].empty())
      continue;
    nodeCosts(v, costs);
    const size_t i = size_t(std::min_element(costs.begin(), costs.end()) - costs.begin());
    for (const ModelPiece &piece : model.pieces[v]) {
      load[piece.begin] += double(model.uses[piece.use + i]);
      load[piece.end] -= double(model.uses[piece.use + i]);
    }
  }
  double norm = 0;
  for (size_t row = 0; row < state.prices.size(); ++row) {
    if (row > 0)
      load[row] += load[row - 1];
    const double over = load[row] - double(model.room[row]);
    if (over > 0 || state.prices[row] > -double(model.prices[row]))
      norm += over * over;
  }
  if (norm == 0)
    return;
  for (size_t row = 0; row < state.prices.size(); ++row)
    state.prices[row] =
        std::max(-double(model.prices[row]), state.prices[row] + step / norm * (load[row] - double(model.room[row])));
  price();
}

void Dual::setState(const State &to) {
  state = to;
  price();
}

void Ascent::step(double gap) {
  dual.sweep();
  const double now = dual.value();
  if (now > best) {
    best = now;
    state = dual.state;
    worse = 0;
  } else if (++worse >= 5) {
    scale *= 0.6;
    worse = 0;
    rewind();
  }
  if (gap > now)
    dual.movePrices(scale * (gap - now));
}

void Dual::applyTo(Core &core) {
  share();
  // Costs get more binary digits while there is room for them, so that little is lost by rounding. A core is priced
  // again and again: its digits are limited in all, so that the base (a sum of 64-bit costs) stays below 2^127.
  constexpr int mostDigits = 40;
  const WideCost gap = std::max<WideCost>(core.target - core.base, 1);
  int digits = 0;
  while (digits - core.shift < mostDigits && gap << (digits + 1) < WideCost(1) << 52)
    ++digits;
  core.shift -= digits;
  core.base <<= digits;
  core.target <<= digits;
  const double unit = std::ldexp(1.0, digits);
  std::vector<WideCost> sums(core.room.size() + 1, 0);
  for (size_t row = 0; row < core.room.size(); ++row) {
    const int64_t before = core.prices[row] << digits;
    const int64_t change = std::max(-before, int64_t(std::llrint(std::clamp(state.prices[row] * unit, -1e18, 1e18))));
    core.prices[row] = before + change;
    core.base -= WideCost(change) * core.room[row];
    sums[row + 1] = sums[row] + change;
  }
  std::vector<int64_t> moved(state.messages.size());
  for (size_t k = 0; k < moved.size(); ++k)
    moved[k] = int64_t(std::llrint(std::clamp((std::min(state.messages[k], huge / 4) - given[k]) * unit, -1e18, 1e18)));
  std::vector<WideCost> wide;
  // Stores the costs of a table above their least one, which the base gets.
  const auto store = [&](std::vector<int64_t> &costs) {
    WideCost least = forbidden;
    for (size_t k = 0; k < costs.size(); ++k)
      if (costs[k] < forbidden)
        least = std::min(least, wide[k]);
    if (least == forbidden) {
      core.infeasible = true;
      return;
    }
    core.base += least;
    for (size_t k = 0; k < costs.size(); ++k)
      costs[k] = costs[k] == forbidden ? forbidden : int64_t(std::min<WideCost>(wide[k] - least, forbidden));
  };
  for (uint32_t v = 0; v < model.nodes(); ++v) {
    CoreNode &node = core.nodes[model.coreNode[v]];
    wide.assign(node.costs.begin(), node.costs.end());
    for (WideCost &cost : wide)
      cost <<= digits;
    for (const ModelPiece &piece : model.pieces[v])
      for (size_t i = 0; i < wide.size(); ++i)
        wide[i] += (sums[piece.end] - sums[piece.begin]) * model.uses[piece.use + i];
    for (const ModelLink &link : model.links[v]) {
      const int64_t *in = &moved[size_t(received(link, v) - state.messages.data())];
      for (size_t i = 0; i < wide.size(); ++i)
        wide[i] += in[i];
    }
    store(node.costs);
  }
  for (uint32_t e = 0; e < model.edges.size(); ++e) {
    CoreEdge &edge = core.edges[model.edges[e].coreEdge];
    const int64_t *toA = &moved[places[e].toA], *toB = &moved[places[e].toB];
    const size_t columns = model.choices[model.edges[e].b];
    wide.resize(edge.costs.size());
    for (size_t k = 0; k < wide.size(); ++k)
      wide[k] = (WideCost(edge.costs[k]) << digits) - toA[k / columns] - toB[k % columns];
    store(edge.costs);
  }
  core.infeasible |= core.base > core.target;
}

} // namespace cleave::partitioner
