// Large neighbourhood search.
#include "partitioner/solver/Neighbourhood.h"

#include <numeric>
#include <utility>

namespace cleave::partitioner {

Core freedCore(const Model &model, const Choices &x, const std::vector<int64_t> &load,
               const std::vector<uint32_t> &freed) {
  Core core;
  core.given = uint32_t(freed.size());
  std::vector<uint32_t> order(freed);
  std::vector<std::pair<uint32_t, uint32_t>> place; // (node, its place), ordered
  for (uint32_t k = 0; k < freed.size(); ++k)
    place.emplace_back(freed[k], k);
  std::sort(place.begin(), place.end());
  const auto placeOf = [&](uint32_t v) {
    const auto found = std::lower_bound(place.begin(), place.end(), std::pair(v, 0u));
    return found != place.end() && found->first == v ? found->second : UINT32_MAX;
  };
  WideCost now = 0;
  std::vector<uint32_t> cuts;
  for (uint32_t k = 0; k < freed.size(); ++k) {
    const uint32_t v = freed[k];
    const int64_t *costs = &model.costs[model.first[v]];
    CoreNode node{{costs, costs + model.choices[v]}, {}, {}};
    now += costs[x[v]];
    for (const ModelLink &link : model.links[v]) {
      const uint32_t other = placeOf(link.node);
      if (other == UINT32_MAX) {
        for (uint32_t i = 0; i < node.costs.size(); ++i)
          node.costs[i] = added(node.costs[i], model.pair(link, i, x[link.node]));
        now += model.pair(link, x[v], x[link.node]);
      } else if (k < other) {
        const int64_t *table = &model.tables[link.table];
        const auto e = uint32_t(core.edges.size());
        core.edges.push_back({{k, other}, {table, table + size_t(model.choices[v]) * model.choices[link.node]}});
        node.edges.push_back(e);
        now += model.pair(link, x[v], x[link.node]);
      }
    }
    for (const ModelPiece &piece : model.pieces[v]) {
      cuts.push_back(piece.begin);
      cuts.push_back(piece.end);
    }
    core.nodes.push_back(std::move(node));
  }
  for (uint32_t e = 0; e < core.edges.size(); ++e)
    core.nodes[core.edges[e].nodes[1]].edges.push_back(e);
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  // Between two cuts the freed nodes use the same, so the fullest row stands for all.
  std::vector<int64_t> own(cuts.size() + 1, 0);
  for (uint32_t k = 0; k < freed.size(); ++k)
    for (const ModelPiece &piece : model.pieces[freed[k]]) {
      const auto begin = uint32_t(std::lower_bound(cuts.begin(), cuts.end(), piece.begin) - cuts.begin());
      const auto end = uint32_t(std::lower_bound(cuts.begin(), cuts.end(), piece.end) - cuts.begin());
      const int64_t *use = &model.uses[piece.use];
      core.nodes[k].pieces.push_back({begin, end, {use, use + model.choices[freed[k]]}});
      own[begin] += use[x[freed[k]]];
      own[end] -= use[x[freed[k]]];
    }
  int64_t level = 0;
  for (size_t c = 0; c + 1 < cuts.size(); ++c) {
    level += own[c];
    int64_t least = INT64_MAX;
    for (uint32_t row = cuts[c]; row < cuts[c + 1]; ++row)
      least = std::min(least, model.room[row] - load[row]);
    core.room.push_back(least + level);
  }
  core.prices.assign(core.room.size(), 0);
  core.target = now - 1;
  return core;
}

NeighbourhoodSearch::NeighbourhoodSearch(const Model &model, Choices start, uint64_t seed)
    : model(model), random(seed), mark(model.nodes(), 0) {
  restart(std::move(start));
}

void NeighbourhoodSearch::restart(Choices from) {
  x = std::move(from);
  current = costOf(model, x);
  load = loadOf(model, x);
}

void NeighbourhoodSearch::setScores(std::vector<double> of) {
  sums = std::move(of);
  std::partial_sum(sums.begin(), sums.end(), sums.begin());
}

/// A node, mostly one with a high score.
uint32_t NeighbourhoodSearch::seed() {
  if (sums.empty() || sums.back() <= 0 || random.below(4) == 0)
    return uint32_t(random.below(model.nodes()));
  const auto at = std::upper_bound(sums.begin(), sums.end(), random.unit() * sums.back());
  return uint32_t(std::min<std::ptrdiff_t>(at - sums.begin(), model.nodes() - 1));
}

/// Adds a node and others that are close to it over edges, in random order, until there are `count`.
void NeighbourhoodSearch::grow(std::vector<uint32_t> &out, uint32_t seed, size_t count) {
  std::vector<uint32_t> border{seed};
  if (std::exchange(mark[seed], uint32_t(tries)) != uint32_t(tries))
    out.push_back(seed);
  while (out.size() < count && !border.empty()) {
    const size_t k = random.below(border.size());
    const uint32_t v = border[k];
    std::vector<uint32_t> next;
    for (const ModelLink &link : model.links[v])
      if (mark[link.node] != uint32_t(tries))
        next.push_back(link.node);
    if (next.empty()) {
      border[k] = border.back();
      border.pop_back();
      continue;
    }
    for (size_t take = std::min<size_t>(next.size(), 4); take > 0 && out.size() < count; --take) {
      const size_t at = random.below(next.size());
      const uint32_t w = next[at];
      next[at] = next.back();
      next.pop_back();
      if (std::exchange(mark[w], uint32_t(tries)) == uint32_t(tries))
        continue; // by another edge
      out.push_back(w);
      border.push_back(w);
    }
  }
}

/// Nodes around one to three seeds.
std::vector<uint32_t> NeighbourhoodSearch::around(size_t count) {
  std::vector<uint32_t> out;
  const size_t parts = 1 + random.below(3);
  for (size_t part = 1; part <= parts; ++part)
    grow(out, seed(), count * part / parts);
  return out;
}

/// Nodes that come one after another.
std::vector<uint32_t> NeighbourhoodSearch::between(size_t count) {
  std::vector<uint32_t> out;
  const uint32_t middle = seed();
  for (uint32_t v = uint32_t(middle > count / 2 ? middle - count / 2 : 0); v < model.nodes() && out.size() < count; ++v)
    out.push_back(v);
  return out;
}

/// Nodes around a seed, and around nodes that use memory in the fullest row that the seed uses.
std::vector<uint32_t> NeighbourhoodSearch::beside(size_t count) {
  std::vector<uint32_t> out;
  const uint32_t from = seed();
  grow(out, from, count / 3);
  if (model.pieces[from].empty())
    return out;
  uint32_t row = model.pieces[from][0].begin;
  for (const ModelPiece &piece : model.pieces[from])
    for (uint32_t r = piece.begin; r < piece.end; ++r)
      if (model.room[r] - load[r] < model.room[row] - load[row])
        row = r;
  std::vector<uint32_t> there;
  for (uint32_t v = 0; v < model.nodes(); ++v)
    if (std::any_of(model.pieces[v].begin(), model.pieces[v].end(),
                    [&](const ModelPiece &piece) { return piece.begin <= row && row < piece.end; }))
      there.push_back(v);
  while (out.size() < count && !there.empty()) {
    const size_t at = random.below(there.size());
    grow(out, there[at], std::min(count, out.size() + 4));
    there[at] = there.back();
    there.pop_back();
  }
  return out;
}

void NeighbourhoodSearch::tryFreed(const std::vector<uint32_t> &freed, WorkLimit &limit) {
  const Core core = freedCore(model, x, load, freed);
  WorkLimit own{.most = 2'000'000, .done = 0, .stop = limit.stop};
  BranchSearch search(core);
  const bool complete = search.run(own);
  limit.spent(own.done + 1000);
  if (complete && own.done < 500'000)
    size = std::min(size * 1.01, double(model.nodes()));
  else if (!complete)
    size = std::max(4.0, size * 0.97);
  if (search.choices().empty())
    return;
  ++gains;
  current -= int64_t(core.target + 1 - search.cost());
  for (size_t k = 0; k < freed.size(); ++k)
    x[freed[k]] = search.choices()[k];
  load = loadOf(model, x);
}

void NeighbourhoodSearch::run(WorkLimit &limit) {
  while (!limit.spent(0)) {
    ++tries;
    const size_t count = std::max<size_t>(2, size_t(size * (0.5 + random.unit())));
    const uint64_t kind = random.below(6);
    tryFreed(kind == 0 ? between(count) : kind == 1 ? beside(count) : around(count), limit);
  }
}

} // namespace cleave::partitioner
