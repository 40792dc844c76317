// A solution under construction: the ops and tensors of a problem, and the ops and tensors added so far.
#pragma once
#include "partitioner/sharding/Solution.h"

namespace cleave::partitioner {

/// Numbers are those of ShardingSolution; added ops are appended, and the order of all ops is kept apart from their
/// numbers.
class Draft {
public:
  explicit Draft(const ShardingProblem &problem);

  /// The index of a sharding. Without partial axes the kind of reduction is reset, so that equal layouts have equal
  /// indices.
  ShardingId intern(Sharding sharding);
  const Sharding &sharding(ShardingId id) const { return solution.table[id]; }
  ShardingId idOf(TensorId tensor) const { return solution.shardings[tensor]; }
  const Sharding &of(TensorId tensor) const { return solution.table[idOf(tensor)]; }
  void set(TensorId tensor, ShardingId id) { solution.shardings[tensor] = id; }

  /// The op that computes a tensor; -1 for an argument.
  OpId makerOf(TensorId tensor) const;
  /// The op of the problem that is `op` or that `op` copies; null for a reshard.
  const ProblemOp *originOf(OpId op) const;
  /// originOf the op that computes a tensor; null for an argument or the result of a reshard.
  const ProblemOp *originMaker(TensorId tensor) const;
  bool isReshard(OpId op) const { return solution.isReshard(op); }
  /// The op of the problem whose marks a reshard has.
  OpId marksOf(OpId reshard) const { return solution.addedOp(reshard).marks; }
  /// The result of an added op.
  TensorId resultOf(OpId added) const { return solution.resultOf(added); }

  const std::vector<TensorId> &operandsOf(OpId op) const { return solution.operandsOf(op); }
  void setOperand(OpId op, size_t i, TensorId tensor);
  int usesOf(TensorId tensor) const { return uses[tensor]; }

  bool isBefore(OpId a, OpId b) const { return places[a].label < places[b].label; }
  void moveAfter(OpId op, OpId other);

  /// Adds a reshard of `tensor` directly behind or before op `beside`, with the marks of op `marks`; returns its
  /// result.
  TensorId addReshardAfter(TensorId tensor, ShardingId to, OpId marks, OpId beside);
  TensorId addReshardBefore(TensorId tensor, ShardingId to, OpId marks, OpId beside);
  /// Adds a copy of `op` directly behind it, with the same operands and one result under `sharding`.
  OpId addCopy(OpId op, ShardingId sharding);
  void setFinishesGradient(OpId reshard) { added(reshard).finishesGradient = true; }

  /// Merges the reshard of a partial sum with the reshards that read the sum, if all users are reshards to the same
  /// sharding and the merged reshard is a reduce-scatter (Rajbhandari et al. 2020; Korthikanti et al. 2022). With other
  /// users the whole sum is needed anyway, and each share is a slice of it.
  void mergeSums();

  ShardingSolution finish(std::vector<std::optional<ShardingId>> named);

private:
  struct Place { // entry in the list of all ops in program order
    OpId previous = -1, next = -1;
    int64_t label = 0; // grows along the list
    bool erased = false;
  };
  const ShardingProblem &problem;
  ShardingSolution solution;
  std::vector<int> uses; // number of uses of each tensor
  std::vector<Place> places;
  OpId first = 0;

  AddedOp &added(OpId op) { return solution.added[op - solution.problemOps]; }
  OpId add(AddedOp op, ShardingId sharding);
  void unlink(OpId op);
  void link(OpId op, OpId previous, OpId next);
  void label();
  std::vector<OpId> reshards() const;
  void mergeInto(OpId sum, std::vector<std::vector<Use>> &readers);
};

} // namespace cleave::partitioner
