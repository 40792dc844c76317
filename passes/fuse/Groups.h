// Groups of ops in a dependency order that merges keep valid. Private to fuse.
//
// Every op of the block (except its terminator) starts as its own group. The groups are in topological order; merging
// two groups is legal if no path connects them through a third. The order is a linked list with increasing labels that
// leave gaps (Dietz and Sleator 1987), so the cost of a merge depends on the dependent groups between the two, not on
// the size of the function.
#pragma once
#include "passes/codegen/nest/LoopNest.h"

#include "mlir/IR/Block.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/DenseMap.h"

#include <optional>
#include <vector>

namespace cleave::passes {

struct Group {
  std::vector<mlir::Operation *> ops; // operands before users
  std::vector<int> successors;        // groups that must come later; may be outdated ids, see find
  bool fusible = false;
  int version = 0;     // changes when the ops change
  double cost = -1;    // of its kernel; negative: not yet computed
  int64_t reduced = 1; // elements of each sum or maximum in it: a kernel's loops allow one number besides 1
};

class Groups {
public:
  explicit Groups(mlir::Block &block);

  int find(int id) const;                 // the current group that contains the original group `id`
  int groupOf(mlir::Operation *op) const; // -1: the terminator or an op elsewhere
  Group &operator[](int id) { return groups[static_cast<size_t>(id)]; }
  std::vector<int> order() const;
  /// Larger for later groups; only for comparison, and changed by merges.
  int64_t positionOf(int id) const { return places[static_cast<size_t>(id)].label; }

  /// Values defined outside, in order of first use, and values used outside, in order of their ops.
  struct Border {
    std::vector<mlir::Value> inputs, outputs;
  };
  Border border(const std::vector<mlir::Operation *> &ops) const;
  std::vector<mlir::Value> inputs(const std::vector<mlir::Operation *> &ops) const;
  std::vector<mlir::Value> outputs(const std::vector<mlir::Operation *> &ops) const;

  /// Whether no path leads from a to b, the later one, through another group.
  bool mayMerge(int a, int b);
  /// Merges a and b; returns false if that would create a cycle. The result has the id of the later group, which is
  /// stored in b.
  bool merge(int &a, int &b);
  /// Creates a group of one op directly before (or after) group `at`.
  int insert(mlir::Operation *op, int at, bool after);
  void erase(int id);
  void setOps(int id, std::vector<mlir::Operation *> ops);
  /// Recomputes the successors of these groups after their users were cloned or erased.
  void rebuildEdges(const std::vector<int> &ids);

private:
  /// A group's links in the order; -1: none.
  struct Place {
    int64_t label = 0;
    int before = -1, after = -1;
  };

  Place &place(int id) { return places[static_cast<size_t>(id)]; }
  void append(mlir::Operation *op);
  bool reachable(int from, int to, std::vector<int> &between);
  void unlink(int id);
  void linkAfter(int id, int at); // at -1: first
  void labelAfter(int id);

  std::vector<Group> groups;
  std::vector<Place> places;
  int first = -1, last = -1;
  mutable std::vector<int> parent; // union-find with path compression
  std::vector<int> seen;           // the last search that visited the group
  int searches = 0;
  llvm::DenseMap<int, int> nextEffect; // groups with side effects stay in order
  llvm::DenseMap<mlir::Operation *, int> unit;
};

} // namespace cleave::passes
