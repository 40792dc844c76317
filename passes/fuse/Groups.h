// Groups of ops in a dependency order that merges keep valid. Private to fuse.
//
// Every op of the block (but its terminator) begins as a group of its own. The groups stand in an order in which
// operands come before users; merging two groups is legal where no path leads from one to the other through a third.
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

  int find(int id) const;
  int groupOf(mlir::Operation *op) const; // -1: the terminator or an op elsewhere
  Group &operator[](int id) { return groups[static_cast<size_t>(id)]; }
  const std::vector<int> &order() const { return sequence; }
  int64_t positionOf(int id) const { return position[static_cast<size_t>(id)]; }

  /// Values from outside, in order of first use, and values used outside, in order of their ops.
  std::vector<mlir::Value> inputs(const std::vector<mlir::Operation *> &ops) const;
  std::vector<mlir::Value> outputs(const std::vector<mlir::Operation *> &ops) const;

  /// Merges a and b; false where that would make a cycle. The result has the id of the later one, which is returned in
  /// b.
  bool merge(int &a, int &b);
  /// A new group of one op, right before (or after) group `at`.
  int insert(mlir::Operation *op, int at, bool after);
  void erase(int id);
  void setOps(int id, std::vector<mlir::Operation *> ops);
  /// Successors anew from the IR, after ops were cloned or erased.
  void rebuildEdges();

private:
  bool reachable(int from, int to, std::vector<int> &between);
  void renumber(size_t first, size_t last);

  std::vector<Group> groups;
  std::vector<int> parent;
  std::vector<int> sequence;     // group ids
  std::vector<int64_t> position; // of a group in `sequence`
  std::vector<char> seen;
  llvm::DenseMap<mlir::Operation *, int> unit;
};

} // namespace cleave::passes
