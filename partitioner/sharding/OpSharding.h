// The shardings of an op's operands and results for a choice of split loops, and all choices that an op has.
#pragma once
#include "partitioner/sharding/Problem.h"

namespace cleave::partitioner {

/// The split of each loop of a rule; no factors: not split.
using LoopSplits = std::vector<DimSharding>;

/// One way to run an op: the shardings that its operands must have, and those that its results then have, partial sums
/// included.
struct OpSharding {
  std::vector<Sharding> operands, results;
  bool operator==(const OpSharding &) const = default;
};

/// What is decided about an op: how it runs, and the shardings under which its results are delivered to the ops that
/// read them. A delivered sharding differs from that of the
/// result where a reshard or a reduction is shared by all of these ops.
struct OpDecision {
  OpSharding sharding;
  std::vector<Sharding> delivered;
  /// Of a forward op, the shardings under which the backward pass reads the results; none: each of its ops as it needs.
  std::vector<std::optional<Sharding>> backward = {};
  bool operator==(const OpDecision &) const = default;
};

/// Whether operand `i` may be a partial sum that the op passes on (see SumPassing).
bool passesSum(const ShardingProblem &problem, const ProblemOp &op, size_t i);

/// The shardings of an op that has a rule, with its loops split as in `splits`. `passed`: sorted axes over which the
/// operands that pass sums are partial.
OpSharding shardOp(const ShardingProblem &problem, const ProblemOp &op, const LoopSplits &splits,
                   const std::vector<std::string> &passed);

/// splitOfRun: how each run of a dimension is split; empty if the runs are not split alike. splitOfRuns is the inverse:
/// the dimension made of `runs` runs that are split like `run`.
std::optional<DimSharding> splitOfRun(const DimSharding &dim, int64_t runs);
DimSharding splitOfRuns(DimSharding run, int64_t runs);

/// All ways in which the op can be run on the mesh, for a search, without duplicates. Every axis with more than one
/// member (except pp) splits one loop, or passes partial sums through, or does nothing. A loop is split as a whole or
/// where defaultCut finds heads or slices. A reshape has the ways in which whole dimensions of its operand or its
/// result are split, a mark those that fulfil it, the return op none (see Result). Empty: the op cannot be run under
/// its mark.
std::vector<OpSharding> choicesOf(const ShardingProblem &problem, OpId op);

} // namespace cleave::partitioner
