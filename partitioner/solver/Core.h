// The form of a problem in which it is solved: costs of at least 0 with a common constant apart, pairs of nodes, and
// the memory as rows. The reductions (Reduce.h) turn a core into a smaller one with the same best assignments.
#pragma once
#include "partitioner/solver/Problem.h"

#include <algorithm>
#include <array>

namespace cleave::partitioner {

/// A cost that no assignment may contain. All costs of a core are between 0 and this.
constexpr int64_t forbidden = (int64_t(1) << 62) - 1; // twice this is below 2^63
/// How far above its base a core's target may be: what a bound loses by rounding must not make more forbidden.
constexpr int64_t widest = forbidden / 2;
inline int64_t added(int64_t a, int64_t b) { return std::min(a + b, forbidden); }

/// While in rows begin .. end-1, the node uses `use[choice]`.
struct CorePiece {
  uint32_t begin = 0, end = 0;
  std::vector<int64_t> use;
};

/// The rows at which pieces begin or end, each once, ascending: between two of them the sum of the pieces is the same.
std::vector<uint32_t> endsOf(const std::vector<CorePiece> &pieces);

struct CoreNode {
  std::vector<int64_t> costs; // one for each choice; empty: the node was removed
  std::vector<CorePiece> pieces;
  std::vector<uint32_t> edges;
};

/// costs[i * choices of nodes[1] + j]; empty: the edge was removed.
struct CoreEdge {
  std::array<uint32_t, 2> nodes{};
  std::vector<int64_t> costs;
};

/// How the choice of a removed node, or of a node with fewer choices, follows from others. `first` and `second` are
/// nodes (`nobody`: none); the choice is map[choice of first * stride + choice of second].
struct Undo {
  static constexpr uint32_t nobody = UINT32_MAX;
  uint32_t node = 0, first = nobody, second = nobody;
  size_t stride = 1;
  std::vector<uint32_t> map;
};

/// An assignment of the problem costs (base + the sum of the core's costs + unused room at the rows' prices) times
/// 2^shift, or more if that is not a whole number: a core is a relaxation once it was priced (Dual.h).
struct Core {
  WideCost base = 0;
  WideCost target = 0; // what exceeds it, with the base, is forbidden
  int shift = 0;
  std::vector<CoreNode> nodes;
  std::vector<CoreEdge> edges;
  std::vector<int64_t> room;   // for each row the memory that is left for the pieces
  std::vector<int64_t> prices; // of a unit of each row's memory, that the costs contain
  std::vector<Undo> undo;      // to be applied from the last to the first
  uint32_t given = 0;          // nodes of the problem; they come first
  bool infeasible = false;     // no assignment is left

  size_t choices(uint32_t v) const { return nodes[v].costs.size(); }
  /// The end of an edge that is not `v`.
  uint32_t other(uint32_t e, uint32_t v) const { return edges[e].nodes[edges[e].nodes[0] == v]; }
  int64_t pair(const CoreEdge &edge, uint32_t i, uint32_t j) const {
    return edge.costs[size_t(i) * choices(edge.nodes[1]) + j];
  }
};

/// The core of a checked problem. An entry that exceeds the least of its table by more than `limit` becomes forbidden.
/// Costs are divided by 2^shift, rounded down. The target is `limit` above the base, at most `widest`.
Core coreOf(const AssignmentProblem &problem, WideCost limit, int shift);

/// The least cost of an assignment that a core's base allows, in the problem's units.
WideCost boundOf(const Core &core);
/// Forbids everything that cannot cost less than `cost`, which is in the problem's units.
void setTarget(Core &core, WideCost cost);

/// The assignment of the problem that follows from the choices of the core's nodes.
std::vector<uint32_t> restored(const Core &core, std::vector<uint32_t> choices);

} // namespace cleave::partitioner
