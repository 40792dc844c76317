// Reductions of nodes and edges. Rows of the memory: ReduceRows.cpp; dominated choices: Dominance.cpp.
#include "partitioner/solver/Reduce.h"
#include "partitioner/solver/ReduceParts.h"

#include <numeric>

namespace cleave::partitioner {

Reducer::Reducer(Core &core, const Reductions &allowed)
    : core(core), allowed(allowed), queued(core.nodes.size(), false), fresh(core.edges.size(), true) {
  for (uint32_t e = 0; e < core.edges.size(); ++e)
    if (!core.edges[e].costs.empty())
      mergeParallel(e);
  for (uint32_t v = 0; v < core.nodes.size(); ++v)
    touch(v);
}

void Reducer::touch(uint32_t v) {
  if (!queued[v] && !core.nodes[v].costs.empty()) {
    queued[v] = true;
    queue.push_back(v);
  }
}

uint64_t Reducer::key(uint32_t a, uint32_t b) { return uint64_t(std::min(a, b)) << 32 | std::max(a, b); }

void Reducer::removeEdge(uint32_t e) {
  const auto [a, b] = core.edges[e].nodes;
  for (uint32_t v : {a, b})
    std::erase(core.nodes[v].edges, e);
  if (const auto found = edgeOf.find(key(a, b)); found != edgeOf.end() && found->second == e)
    edgeOf.erase(found);
  core.edges[e].costs = {};
}

/// Adds the costs of an edge to another edge of the same nodes, if there is one. The edge may be listed at its nodes.
void Reducer::mergeParallel(uint32_t e) {
  CoreEdge &edge = core.edges[e];
  const auto [found, isNew] = edgeOf.try_emplace(key(edge.nodes[0], edge.nodes[1]), e);
  if (isNew || found->second == e)
    return;
  CoreEdge &into = core.edges[found->second];
  const size_t rows = core.choices(into.nodes[0]), columns = core.choices(into.nodes[1]);
  const bool turned = into.nodes[0] != edge.nodes[0];
  for (size_t i = 0; i < rows; ++i)
    for (size_t j = 0; j < columns; ++j) {
      int64_t &cost = into.costs[i * columns + j];
      cost = added(cost, edge.costs[turned ? j * rows + i : i * columns + j]);
    }
  fresh[found->second] = true;
  removeEdge(e);
}

void Reducer::addEdge(uint32_t a, uint32_t b, std::vector<int64_t> costs) {
  const auto e = uint32_t(core.edges.size());
  core.edges.push_back({{a, b}, std::move(costs)});
  fresh.push_back(true);
  core.nodes[a].edges.push_back(e);
  core.nodes[b].edges.push_back(e);
  mergeParallel(e);
  touch(a);
  touch(b);
}

/// Moves the least cost of every row and column of an edge to its nodes. What remains of a sum u(i) + v(j) is zero, and
/// the edge is removed.
void Reducer::shiftEdge(uint32_t e) {
  CoreEdge &edge = core.edges[e];
  const int64_t most = mostAbove();
  for (int64_t &cost : edge.costs)
    if (cost > most)
      cost = forbidden;
  bool zero = true;
  for (unsigned end = 0; end < 2; ++end) {
    CoreNode &node = core.nodes[edge.nodes[end]];
    const size_t count = node.costs.size(), others = core.choices(edge.nodes[1 - end]),
                 columns = core.choices(edge.nodes[1]);
    zero = true;
    for (size_t i = 0; i < count; ++i) {
      const auto at = [&](size_t j) -> int64_t & { return edge.costs[end == 0 ? i * columns + j : j * columns + i]; };
      int64_t least = forbidden;
      for (size_t j = 0; j < others; ++j)
        least = std::min(least, at(j));
      if (least == forbidden)
        for (size_t j = 0; j < others; ++j)
          at(j) = 0;
      for (size_t j = 0; j < others; ++j) {
        if (least != forbidden && at(j) != forbidden)
          at(j) -= least;
        zero &= at(j) == 0;
      }
      if (least != 0) {
        node.costs[i] = added(node.costs[i], least);
        touch(edge.nodes[end]);
      }
    }
  }
  if (zero) {
    const auto [a, b] = edge.nodes;
    removeEdge(e);
    touch(a);
    touch(b);
  }
}

void Reducer::keepChoices(uint32_t v, const std::vector<uint32_t> &kept) {
  CoreNode &node = core.nodes[v];
  const size_t before = node.costs.size();
  if (kept.size() == before)
    return;
  if (kept.empty()) {
    core.infeasible = true;
    return;
  }
  for (uint32_t e : node.edges) {
    CoreEdge &edge = core.edges[e];
    const size_t rows = core.choices(edge.nodes[0]), columns = core.choices(edge.nodes[1]);
    std::vector<int64_t> costs;
    if (edge.nodes[0] == v)
      for (uint32_t i : kept)
        costs.insert(costs.end(), edge.costs.begin() + std::ptrdiff_t(i * columns),
                     edge.costs.begin() + std::ptrdiff_t((i + 1) * columns));
    else
      for (size_t i = 0; i < rows; ++i)
        for (uint32_t j : kept)
          costs.push_back(edge.costs[i * columns + j]);
    edge.costs = std::move(costs);
    fresh[e] = true;
    touch(core.other(e, v));
  }
  const auto pick = [&](std::vector<int64_t> &values) {
    std::vector<int64_t> out;
    for (uint32_t i : kept)
      out.push_back(values[i]);
    values = std::move(out);
  };
  pick(node.costs);
  for (CorePiece &piece : node.pieces)
    pick(piece.use);
  core.undo.push_back({v, v, Undo::nobody, 1, kept});
  touch(v);
}

/// What a cost may be at most; below `forbidden`.
int64_t Reducer::mostAbove() const { return int64_t(std::clamp<WideCost>(core.target - core.base, -1, forbidden - 1)); }

void Reducer::dropForbidden(uint32_t v) {
  CoreNode &node = core.nodes[v];
  const int64_t least = *std::min_element(node.costs.begin(), node.costs.end());
  if (least < forbidden) {
    core.base += least;
    for (int64_t &cost : node.costs)
      if (cost < forbidden)
        cost -= least;
  }
  const int64_t most = mostAbove();
  std::vector<uint32_t> kept;
  for (uint32_t i = 0; i < node.costs.size(); ++i)
    if (node.costs[i] <= most)
      kept.push_back(i);
  keepChoices(v, kept);
}

void Reducer::removeNode(uint32_t v, Undo undo) {
  while (!core.nodes[v].edges.empty())
    removeEdge(core.nodes[v].edges.back());
  core.nodes[v] = {};
  core.undo.push_back(std::move(undo));
}

/// A node with one choice: its edges are costs of its neighbours, and its memory is used in any case.
void Reducer::foldSingle(uint32_t v) {
  CoreNode &node = core.nodes[v];
  for (uint32_t e : node.edges) {
    CoreNode &neighbour = core.nodes[core.other(e, v)];
    std::transform(neighbour.costs.begin(), neighbour.costs.end(), core.edges[e].costs.begin(), neighbour.costs.begin(),
                   added);
    touch(core.other(e, v));
  }
  for (const CorePiece &piece : node.pieces)
    for (uint32_t row = piece.begin; row < piece.end; ++row)
      core.room[row] -= piece.use[0];
  removeNode(v, {v, Undo::nobody, Undo::nobody, 1, {0}});
}

/// A node without memory and with at most two neighbours: for every choice of them its best choice is known.
bool Reducer::foldFew(uint32_t v) {
  CoreNode &node = core.nodes[v];
  if (!node.pieces.empty() || node.edges.size() > 2)
    return false;
  std::array<uint32_t, 2> ends{Undo::nobody, Undo::nobody};
  std::array<size_t, 2> sizes{1, 1};
  for (size_t k = 0; k < node.edges.size(); ++k) {
    ends[k] = core.other(node.edges[k], v);
    sizes[k] = core.choices(ends[k]);
  }
  const size_t choices = node.costs.size(), table = sizes[0] * sizes[1];
  if (node.edges.size() == 2 && table > 2 * choices * (sizes[0] + sizes[1]) && !edgeOf.contains(key(ends[0], ends[1])))
    return false;
  const auto cost = [&](size_t k, size_t of, size_t i) {
    const CoreEdge &edge = core.edges[node.edges[k]];
    return edge.nodes[0] == v ? edge.costs[i * sizes[k] + of] : edge.costs[of * choices + i];
  };
  std::vector<int64_t> best(table, forbidden);
  std::vector<uint32_t> map(table, 0);
  for (size_t a = 0; a < sizes[0]; ++a)
    for (size_t b = 0; b < sizes[1]; ++b)
      for (size_t i = 0; i < choices; ++i) {
        int64_t sum = node.costs[i];
        if (ends[0] != Undo::nobody)
          sum = added(sum, cost(0, a, i));
        if (ends[1] != Undo::nobody)
          sum = added(sum, cost(1, b, i));
        if (sum < best[a * sizes[1] + b]) {
          best[a * sizes[1] + b] = sum;
          map[a * sizes[1] + b] = uint32_t(i);
        }
      }
  removeNode(v, {v, ends[0], ends[1], sizes[1], std::move(map)});
  if (ends[1] != Undo::nobody)
    addEdge(ends[0], ends[1], std::move(best));
  else if (ends[0] != Undo::nobody) {
    CoreNode &into = core.nodes[ends[0]];
    std::transform(into.costs.begin(), into.costs.end(), best.begin(), into.costs.begin(), added);
    touch(ends[0]);
  } else
    core.base += best[0];
  return true;
}

/// For each choice of `v` the only choice of the edge's other node that the edge allows; empty if there is another.
std::vector<uint32_t> Reducer::tie(uint32_t e, uint32_t v) const {
  const CoreEdge &edge = core.edges[e];
  const bool first = edge.nodes[0] == v;
  const size_t count = core.choices(v), others = core.choices(core.other(e, v));
  std::vector<uint32_t> map(count, Undo::nobody);
  if (others > count)
    return {};
  for (size_t i = 0; i < count; ++i)
    for (size_t j = 0; j < others; ++j)
      if (edge.costs[first ? i * others + j : j * count + i] < forbidden) {
        if (map[i] != Undo::nobody)
          return {};
        map[i] = uint32_t(j);
      }
  return map;
}

/// A node whose choice follows from the other's: its costs, memory and edges become the other's. Where both follow from
/// each other, the node with fewer edges is folded.
bool Reducer::foldTied(uint32_t e) {
  auto [a, b] = core.edges[e].nodes;
  if (std::pair(core.choices(a), core.nodes[a].edges.size()) < std::pair(core.choices(b), core.nodes[b].edges.size()))
    std::swap(a, b);
  if (core.choices(b) < core.choices(a) && core.nodes[b].edges.size() > 2)
    return false; // its edges would grow
  std::vector<uint32_t> map = tie(e, a);
  if (map.empty() || std::find(map.begin(), map.end(), Undo::nobody) != map.end())
    return false;
  foldInto(a, e, b, std::move(map));
  return true;
}

void Reducer::foldInto(uint32_t v, uint32_t e, uint32_t w, std::vector<uint32_t> map) {
  CoreNode &into = core.nodes[v], from = std::move(core.nodes[w]);
  core.nodes[w].edges = from.edges;
  core.nodes[w].costs = from.costs; // the sizes of tables are known by it
  const size_t choices = into.costs.size(), others = from.costs.size();
  for (size_t i = 0; i < choices; ++i) {
    const int64_t pair = core.edges[e].nodes[0] == v ? core.edges[e].costs[i * others + map[i]]
                                                     : core.edges[e].costs[map[i] * choices + i];
    into.costs[i] = added(into.costs[i], added(pair, from.costs[map[i]]));
  }
  for (CorePiece &piece : from.pieces) {
    CorePiece mine{piece.begin, piece.end, {}};
    for (size_t i = 0; i < choices; ++i)
      mine.use.push_back(piece.use[map[i]]);
    into.pieces.push_back(std::move(mine));
  }
  std::vector<std::pair<uint32_t, std::vector<int64_t>>> moved; // edges from v
  for (uint32_t f : from.edges) {
    const uint32_t x = core.other(f, w);
    if (x == v)
      continue;
    const CoreEdge &edge = core.edges[f];
    const size_t far = core.choices(x);
    std::vector<int64_t> costs(choices * far);
    for (size_t i = 0; i < choices; ++i)
      for (size_t j = 0; j < far; ++j)
        costs[i * far + j] = edge.nodes[0] == w ? edge.costs[map[i] * far + j] : edge.costs[j * others + map[i]];
    moved.emplace_back(x, std::move(costs));
  }
  removeNode(w, {w, v, Undo::nobody, 1, std::move(map)});
  for (auto &[x, costs] : moved)
    addEdge(v, x, std::move(costs));
  touch(v);
}

/// Applies every reduction of nodes until none changes anything.
void Reducer::reduceNodes() {
  while (!queue.empty() && !core.infeasible) {
    const uint32_t v = queue.front();
    queue.pop_front();
    queued[v] = false;
    if (core.nodes[v].costs.empty())
      continue;
    std::vector<uint32_t> edges;
    for (uint32_t e : core.nodes[v].edges)
      if (fresh[e])
        edges.push_back(e);
    for (uint32_t e : edges) {
      fresh[e] = false; // until it changes again
      shiftEdge(e);
    }
    dropForbidden(v);
    if (core.infeasible)
      return;
    if (core.choices(v) == 1) {
      foldSingle(v);
      continue;
    }
    if (allowed.folded && foldFew(v))
      continue;
    for (uint32_t e : edges)
      if (allowed.tied && !core.edges[e].costs.empty() && !fresh[e])
        foldTied(e);
  }
}

void reduce(Core &core, const Reductions &reductions) {
  Reducer reducer(core, reductions);
  reducer.reduceNodes();
  for (bool again = true; again && !core.infeasible;) {
    again = reducer.reduceMemory();
    reducer.reduceNodes();
    if (reductions.dominated && !core.infeasible)
      again |= reducer.dropDominated();
    reducer.reduceNodes();
  }
  core.infeasible |= core.base > core.target;
}

} // namespace cleave::partitioner
