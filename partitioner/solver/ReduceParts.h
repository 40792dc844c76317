// The reductions that Reduce.h applies, for its source files alone.
#pragma once
#include "partitioner/solver/Reduce.h"

#include <deque>
#include <unordered_map>

namespace cleave::partitioner {

class Reducer {
public:
  Reducer(Core &core, const Reductions &allowed);
  /// Reductions of nodes and edges until none changes anything.
  void reduceNodes();
  /// Moves what is used in any case from the pieces to the rows, drops choices that cannot fit, pieces that are used by
  /// all choices, and rows that cannot be exceeded. Returns whether anything changed that nodes depend on.
  bool reduceMemory();
  /// Drops choices that another choice can replace. Returns whether there were any.
  bool dropDominated();

private:
  static uint64_t key(uint32_t a, uint32_t b);
  void touch(uint32_t v);
  void removeEdge(uint32_t e);
  void removeNode(uint32_t v, Undo undo);
  void mergeParallel(uint32_t e);
  void addEdge(uint32_t a, uint32_t b, std::vector<int64_t> costs);
  void shiftEdge(uint32_t e);
  void keepChoices(uint32_t v, const std::vector<uint32_t> &kept);
  int64_t mostAbove() const;
  void dropForbidden(uint32_t v);
  void foldSingle(uint32_t v);
  bool foldFew(uint32_t v);
  std::vector<uint32_t> tie(uint32_t e, uint32_t v) const;
  bool foldTied(uint32_t e);
  void foldInto(uint32_t v, uint32_t e, uint32_t w, std::vector<uint32_t> map);
  bool shiftPieces(CoreNode &node);
  bool dropTooLarge();
  bool dropRows();
  void keepRows(const std::vector<bool> &kept);
  bool replaces(uint32_t v, uint32_t i, uint32_t j, const std::vector<WideCost> &paid) const;

  Core &core;
  Reductions allowed;
  std::vector<bool> queued;
  std::vector<bool> fresh; // edges that changed since they were last looked at
  std::deque<uint32_t> queue;
  std::unordered_map<uint64_t, uint32_t> edgeOf; // by the nodes
};

} // namespace cleave::partitioner
