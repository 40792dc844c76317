// A choice of shardings as plain values: one for each tensor, and the ops added where an op needs a tensor under
// another sharding. partitioner/annotate writes it to the IR.
#pragma once
#include "partitioner/sharding/Problem.h"

namespace cleave::partitioner {

struct ShardingHash {
  size_t operator()(const Sharding &sharding) const;
};
using ShardingTable = Interned<Sharding, ShardingHash>;

/// An op that the solution adds to those of the problem: a reshard, or a copy of an op of the problem, which computes
/// its result under another sharding instead of moving it.
struct AddedOp {
  OpId copied = -1; ///< the op of the problem that is copied; -1: a reshard of the only operand
  std::vector<TensorId> operands;
  OpId marks = -1;               ///< for a reshard: the op of the problem whose path, stage and phase it takes
  bool finishesGradient = false; ///< whether a reshard finishes the sum of a gradient
};

/// A choice of shardings. Ops and tensors of the problem keep their numbers; added op i is op `problemOps + i` and its
/// result tensor `problemTensors + i`.
struct ShardingSolution {
  OpId problemOps = 0;
  TensorId problemTensors = 0;
  std::vector<AddedOp> added;
  ShardingTable table;
  std::vector<ShardingId> shardings;            ///< of every tensor, added ones included
  std::vector<std::vector<TensorId>> operands;  ///< new operands of every op of the problem
  std::vector<OpId> order;                      ///< all ops in program order
  std::vector<std::optional<ShardingId>> named; ///< of the problem's names, if they are decided

  const Sharding &shardingOf(TensorId tensor) const { return table[shardings[tensor]]; }
  bool isAdded(OpId op) const { return op >= problemOps; }
  const AddedOp &addedOp(OpId op) const { return added[op - problemOps]; }
  bool isReshard(OpId op) const { return isAdded(op) && addedOp(op).copied < 0; }
  TensorId resultOf(OpId addedOp) const { return problemTensors + (addedOp - problemOps); }
  const std::vector<TensorId> &operandsOf(OpId op) const { return isAdded(op) ? addedOp(op).operands : operands[op]; }
  /// The tensor of the problem from which an added tensor differs only by its sharding.
  TensorId origin(TensorId tensor, const ShardingProblem &problem) const;
};

} // namespace cleave::partitioner
