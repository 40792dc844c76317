// What an op needs of its operands and gives as results, for a choice of split loops; and all choices that an op has.
#pragma once
#include "partitioner/sharding/Problem.h"

namespace cleave::partitioner {

/// For each loop of a rule how it is split; no factors: not split.
using LoopSplits = std::vector<DimSharding>;

/// One way to run an op: the shardings that its operands must have, and those that its results then have, partial sums
/// included.
struct OpSharding {
  std::vector<Sharding> operands, results;
  bool operator==(const OpSharding &) const = default;
};

/// Whether operand `i` may be a partial sum that the op passes on (see SumPassing).
bool passesSum(const ShardingProblem &problem, const ProblemOp &op, size_t i);

/// The op, which has a rule, with its loops split so. `passed`: sorted axes over which the operands that pass sums are
/// partial sums.
OpSharding shardOp(const ShardingProblem &problem, const ProblemOp &op, const LoopSplits &splits,
                   const std::vector<std::string> &passed);

/// How each run of a dimension is split, given the dimension; nothing where the runs are not split alike. And the
/// dimension of several runs that are split so.
std::optional<DimSharding> splitOfRun(const DimSharding &dim, int64_t runs);
DimSharding splitOfRuns(DimSharding run, int64_t runs);

/// Every way in which the op can be run on the mesh, for a search to choose from; each once. Every axis of more than
/// one member (except pp) splits one loop, or partial sums over it pass through, or nothing. A loop is split as a whole
/// or where defaultCut sees heads or slices. A reshape has the ways in which whole dimensions of its operand or its
/// result are split; a mark those that fulfil it; the return op none (see Result). Empty: the op cannot be run under
/// its mark.
std::vector<OpSharding> choicesOf(const ShardingProblem &problem, OpId op);

} // namespace cleave::partitioner
