// Choices that another choice can replace.
#include "partitioner/solver/ReduceParts.h"

namespace cleave::partitioner {

/// Whether choice i costs no more than choice j whatever the neighbours take, and uses no more memory in any piece.
/// `paid`: the prices of each piece of the node. The costs contain them, but they are not costs of the problem.
bool Reducer::replaces(uint32_t v, uint32_t i, uint32_t j, const std::vector<WideCost> &paid) const {
  const CoreNode &node = core.nodes[v];
  int64_t worse = node.costs[i]; // of i, at most
  if (worse > node.costs[j])
    return false;
  for (size_t k = 0; k < node.pieces.size(); ++k) {
    const CorePiece &piece = node.pieces[k];
    if (piece.use[i] > piece.use[j])
      return false;
    worse = int64_t(std::min<WideCost>(worse + paid[k] * (piece.use[j] - piece.use[i]), forbidden));
  }
  if (worse > node.costs[j])
    return false;
  for (uint32_t e : node.edges) {
    const CoreEdge &edge = core.edges[e];
    const bool first = edge.nodes[0] == v;
    const size_t columns = core.choices(edge.nodes[1]), others = core.choices(core.other(e, v));
    int64_t most = INT64_MIN;
    for (size_t k = 0; k < others; ++k) {
      const int64_t a = edge.costs[first ? i * columns + k : k * columns + i],
                    b = edge.costs[first ? j * columns + k : k * columns + j];
      if (b != forbidden)
        most = std::max(most, a - b);
    }
    if (most == INT64_MIN)
      return true; // j is allowed with no choice of this neighbour
    if ((worse = most >= forbidden ? forbidden : added(worse, most)) > node.costs[j])
      return false;
  }
  return true;
}

bool Reducer::dropDominated() {
  bool dropped = false;
  std::vector<WideCost> sums(core.prices.size() + 1, 0);
  for (size_t row = 0; row < core.prices.size(); ++row)
    sums[row + 1] = sums[row] + core.prices[row];
  for (uint32_t v = 0; v < core.nodes.size(); ++v) {
    const auto count = uint32_t(core.nodes[v].costs.size());
    std::vector<WideCost> paid;
    for (const CorePiece &piece : core.nodes[v].pieces)
      paid.push_back(sums[piece.end] - sums[piece.begin]);
    std::vector<bool> gone(count, false);
    std::vector<uint32_t> kept;
    for (uint32_t j = 0; j < count; ++j) {
      for (uint32_t i = 0; i < count && !gone[j]; ++i)
        if (i != j && !gone[i] && replaces(v, i, j, paid))
          gone[j] = true;
      if (!gone[j])
        kept.push_back(j);
    }
    if (kept.size() < count) {
      keepChoices(v, kept);
      dropped = true;
    }
  }
  return dropped;
}

} // namespace cleave::partitioner
