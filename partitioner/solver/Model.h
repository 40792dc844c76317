// A reduced core in flat arrays, as the bound and the searches read it: nodes without gaps, and the memory of a node in
// disjoint rows.
#pragma once
#include "partitioner/solver/Core.h"

namespace cleave::partitioner {

/// A table of costs between two nodes, in both orders.
struct ModelEdge {
  uint32_t a = 0, b = 0;
  uint32_t coreEdge = 0;
  size_t ab = 0, ba = 0; // places in Model::tables: [choice of a][choice of b], and the other way round
};

/// An edge as one of its nodes sees it.
struct ModelLink {
  uint32_t edge = 0, node = 0; // the other node
  size_t table = 0;            // [own choice][choice of the other node]
};

struct ModelPiece {
  uint32_t begin = 0, end = 0;
  size_t use = 0; // place in Model::uses, one for each choice
};

struct Model {
  WideCost base = 0;
  std::vector<uint32_t> coreNode;                 // of each node
  std::vector<uint32_t> choices, first;           // of each node: their number, and the place in `costs`
  std::vector<int64_t> costs, tables, uses, room; // room: of each row
  std::vector<int64_t> prices;                    // of each row, in the costs
  std::vector<ModelEdge> edges;
  std::vector<std::vector<ModelLink>> links;
  std::vector<std::vector<ModelPiece>> pieces; // of a node: disjoint, in the order of rows

  uint32_t nodes() const { return uint32_t(choices.size()); }
  int64_t pair(const ModelLink &link, uint32_t own, uint32_t others) const {
    return tables[link.table + size_t(own) * choices[link.node] + others];
  }
};

Model modelOf(const Core &core);

using Choices = std::vector<uint32_t>;

/// The cost above the base; at least `forbidden` if it has a forbidden pair.
int64_t costOf(const Model &model, const Choices &x);
/// What is used in each row.
std::vector<int64_t> loadOf(const Model &model, const Choices &x);
/// Whether no row is exceeded.
bool fits(const Model &model, const Choices &x);
/// The choices of the core's nodes.
std::vector<uint32_t> coreChoices(const Core &core, const Model &model, const Choices &x);

} // namespace cleave::partitioner
