// A choice of shardings as values: one for each tensor, and what stands between tensors and the ops that need them
// otherwise. partitioner/annotate writes it onto the IR.
#pragma once
#include "partitioner/sharding/Problem.h"

namespace cleave::partitioner {

struct ShardingHash {
  size_t operator()(const Sharding &sharding) const;
};
using ShardingTable = Interned<Sharding, ShardingHash>;

/// An op that the solution adds to those of the problem: a reshard, or an op of the problem once more, whose result is
/// computed under another sharding instead of being moved.
struct AddedOp {
  OpId copied = -1; ///< the op of the problem that is made once more; -1: a reshard of the only operand
  std::vector<TensorId> operands;
  OpId marks = -1;               ///< of a reshard: the op of the problem whose path, stage and phase it takes
  bool finishesGradient = false; ///< a reshard that ends the sum of a gradient
};

/// A choice of shardings. Ops and tensors of the problem keep their numbers; added op i is op `problemOps + i` and its
/// result tensor `problemTensors + i`.
struct ShardingSolution {
  OpId problemOps = 0;
  TensorId problemTensors = 0;
  std::vector<AddedOp> added;
  ShardingTable table;
  std::vector<ShardingId> shardings;            ///< of every tensor, added ones included
  std::vector<std::vector<TensorId>> operands;  ///< of every op of the problem: what it reads now
  std::vector<OpId> order;                      ///< all ops in program order
  std::vector<std::optional<ShardingId>> named; ///< of the problem's names, where they are decided now

  const Sharding &shardingOf(TensorId tensor) const { return table[shardings[tensor]]; }
  bool isAdded(OpId op) const { return op >= problemOps; }
  const AddedOp &addedOp(OpId op) const { return added[op - problemOps]; }
  bool isReshard(OpId op) const { return isAdded(op) && addedOp(op).copied < 0; }
  TensorId resultOf(OpId addedOp) const { return problemTensors + (addedOp - problemOps); }
  const std::vector<TensorId> &operandsOf(OpId op) const { return isAdded(op) ? addedOp(op).operands : operands[op]; }
  /// The tensor of the problem that an added tensor is, under another sharding.
  TensorId origin(TensorId tensor, const ShardingProblem &problem) const;
};

} // namespace cleave::partitioner
