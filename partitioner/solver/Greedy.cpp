// Greedy choices.
#include "partitioner/solver/Greedy.h"

#include <cmath>

namespace cleave::partitioner {

Choices greedyChoices(const Model &model, const Dual &dual) {
  std::vector<int64_t> room = model.room;
  Choices x(model.nodes(), 0);
  std::vector<double> costs, received;
  for (uint32_t v = 0; v < model.nodes(); ++v) {
    dual.nodeCosts(v, costs);
    // Towards the nodes before it, the node pays the true pair instead of the message.
    for (const ModelLink &link : model.links[v])
      if (link.node < v) {
        dual.message(link, v, received);
        for (uint32_t i = 0; i < costs.size(); ++i) {
          const int64_t pair = model.pair(link, i, x[link.node]);
          costs[i] = pair >= forbidden || received[i] > 1e29 ? INFINITY : costs[i] + double(pair) - received[i];
        }
      }
    for (const ModelPiece &piece : model.pieces[v]) {
      const int64_t least = *std::min_element(room.begin() + piece.begin, room.begin() + piece.end);
      for (uint32_t i = 0; i < costs.size(); ++i)
        if (model.uses[piece.use + i] > least)
          costs[i] = INFINITY;
    }
    x[v] = uint32_t(std::min_element(costs.begin(), costs.end()) - costs.begin());
    if (!std::isfinite(costs[x[v]]))
      return {};
    for (const ModelPiece &piece : model.pieces[v])
      for (uint32_t row = piece.begin; row < piece.end; ++row)
        room[row] -= model.uses[piece.use + x[v]];
  }
  return x;
}

} // namespace cleave::partitioner
