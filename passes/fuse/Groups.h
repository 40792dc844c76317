// Groups of ops in a dependency order that merges keep valid. Private to fuse.
//
// Every op of the block (but its terminator) begins as a group of its own. The groups stand in an order in which
// operands come before users; merging two groups is legal where no path leads from one to the other through a third.
// The order is a linked list whose entries carry growing labels with room between them (Dietz and Sleator 1987), so
// that a merge costs what lies between the two groups and depends on the first, not what the function has.
#pragma once
#include "passes/codegen/Program.h"

#include "mlir/IR/Block.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/DenseMap.h"

#include <optional>
#include <vector>

namespace cleave::passes {

struct Group {
  std::vector<mlir::Operation *> ops; // operands before users
  std::vector<int> successors;        // groups that must come later; may be out of date ids, see find
  bool fusible = false;
  int version = 0;  // changes with its ops
  double cost = -1; // of its kernel; negative: not computed yet
};

class Groups {
public:
  explicit Groups(mlir::Block &block);

  int find(int id) const;                 // the group that `id` has become
  int groupOf(mlir::Operation *op) const; // -1: the terminator or an op elsewhere
  Group &operator[](int id) { return groups[static_cast<size_t>(id)]; }
  std::vector<int> order() const;
  /// Larger for later groups; says no more, and changes with merges.
  int64_t positionOf(int id) const { return places[static_cast<size_t>(id)].label; }

  /// Values from outside, in order of first use, and values used outside, in order of their ops.
  struct Border {
    std::vector<mlir::Value> inputs, outputs;
  };
  Border border(const std::vector<mlir::Operation *> &ops) const;
  std::vector<mlir::Value> inputs(const std::vector<mlir::Operation *> &ops) const;
  std::vector<mlir::Value> outputs(const std::vector<mlir::Operation *> &ops) const;

  /// Merges a and b; false where that would make a cycle. The result has the id of the later one, which is returned in
  /// b.
  bool merge(int &a, int &b);
  /// A new group of one op, right before (or after) group `at`.
  int insert(mlir::Operation *op, int at, bool after);
  void erase(int id);
  void setOps(int id, std::vector<mlir::Operation *> ops);
  /// Successors of these groups anew from the IR, after ops that they are read by were cloned or erased.
  void rebuildEdges(const std::vector<int> &ids);

private:
  /// A group's place in the order; -1: no neighbour.
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
  mutable std::vector<int> parent; // paths are shortened as they are walked
  std::vector<int> seen;           // by which search
  int searches = 0;
  llvm::DenseMap<int, int> nextEffect; // groups with side effects stay in order
  llvm::DenseMap<mlir::Operation *, int> unit;
};

} // namespace cleave::passes
