// Flat arrays of a core.
#include "partitioner/solver/Model.h"

namespace cleave::partitioner {
namespace {

/// Splits the pieces of a node at each other's ends, so that they are disjoint.
void addDisjointPieces(Model &model, const CoreNode &node) {
  const size_t choices = node.costs.size();
  const std::vector<uint32_t> cuts = endsOf(node.pieces);
  std::vector<std::vector<int64_t>> change(cuts.size());
  for (const CorePiece &piece : node.pieces)
    for (const auto &[row, sign] : {std::pair(piece.begin, 1), std::pair(piece.end, -1)}) {
      std::vector<int64_t> &at = change[size_t(std::lower_bound(cuts.begin(), cuts.end(), row) - cuts.begin())];
      at.resize(choices);
      for (size_t i = 0; i < choices; ++i)
        at[i] += sign * piece.use[i];
    }
  std::vector<int64_t> level(choices, 0);
  auto &out = model.pieces.emplace_back();
  for (size_t c = 0; c + 1 < cuts.size(); ++c) {
    bool changed = false, any = false;
    for (size_t i = 0; i < choices; ++i) {
      changed |= !change[c].empty() && change[c][i] != 0;
      level[i] += change[c].empty() ? 0 : change[c][i];
      any |= level[i] != 0;
    }
    if (!any)
      continue;
    if (!changed && !out.empty() && out.back().end == cuts[c]) {
      out.back().end = cuts[c + 1];
      continue;
    }
    out.push_back({cuts[c], cuts[c + 1], model.uses.size()});
    model.uses.insert(model.uses.end(), level.begin(), level.end());
  }
}

} // namespace

Model modelOf(const Core &core) {
  Model model;
  model.base = core.base;
  model.room = core.room;
  model.prices = core.prices;
  std::vector<uint32_t> place(core.nodes.size(), 0);
  for (uint32_t v = 0; v < core.nodes.size(); ++v) {
    const CoreNode &node = core.nodes[v];
    if (node.costs.empty())
      continue;
    place[v] = model.nodes();
    model.coreNode.push_back(v);
    model.choices.push_back(uint32_t(node.costs.size()));
    model.first.push_back(uint32_t(model.costs.size()));
    model.costs.insert(model.costs.end(), node.costs.begin(), node.costs.end());
    addDisjointPieces(model, node);
  }
  model.links.resize(model.nodes());
  for (uint32_t of = 0; of < core.edges.size(); ++of) {
    const CoreEdge &edge = core.edges[of];
    if (edge.costs.empty())
      continue;
    const auto e = uint32_t(model.edges.size());
    const uint32_t a = place[edge.nodes[0]], b = place[edge.nodes[1]];
    const size_t ab = model.tables.size(), ba = ab + edge.costs.size();
    model.edges.push_back({a, b, of, ab, ba});
    model.tables.insert(model.tables.end(), edge.costs.begin(), edge.costs.end());
    for (size_t j = 0; j < model.choices[b]; ++j)
      for (size_t i = 0; i < model.choices[a]; ++i)
        model.tables.push_back(edge.costs[i * model.choices[b] + j]);
    model.links[a].push_back({e, b, ab});
    model.links[b].push_back({e, a, ba});
  }
  return model;
}

int64_t costOf(const Model &model, const Choices &x) {
  int64_t sum = 0;
  for (uint32_t v = 0; v < model.nodes(); ++v)
    sum = added(sum, model.costs[model.first[v] + x[v]]);
  for (const ModelEdge &edge : model.edges)
    sum = added(sum, model.tables[edge.ab + size_t(x[edge.a]) * model.choices[edge.b] + x[edge.b]]);
  return sum;
}

std::vector<int64_t> loadOf(const Model &model, const Choices &x) {
  std::vector<int64_t> load(model.room.size() + 1, 0);
  for (uint32_t v = 0; v < model.nodes(); ++v)
    for (const ModelPiece &piece : model.pieces[v]) {
      load[piece.begin] += model.uses[piece.use + x[v]];
      load[piece.end] -= model.uses[piece.use + x[v]];
    }
  for (size_t row = 1; row < load.size(); ++row)
    load[row] += load[row - 1];
  load.pop_back();
  return load;
}

bool fits(const Model &model, const Choices &x) {
  const std::vector<int64_t> load = loadOf(model, x);
  return std::equal(load.begin(), load.end(), model.room.begin(),
                    [](int64_t used, int64_t room) { return used <= room; });
}

std::vector<uint32_t> coreChoices(const Core &core, const Model &model, const Choices &x) {
  std::vector<uint32_t> out(core.nodes.size(), 0);
  for (uint32_t v = 0; v < model.nodes(); ++v)
    out[model.coreNode[v]] = x[v];
  return out;
}

} // namespace cleave::partitioner
