// Chooses shardings, on plain values without IR.
#pragma once
#include "partitioner/sharding/Decided.h"
#include "partitioner/sharding/Solution.h"

namespace cleave::partitioner {

/// Gives every tensor a sharding, in one walk in program order. Pinned shardings and marks are taken as given; a
/// reshard is added where an op needs an operand under another sharding. An open argument gets the sharding that the
/// first op that uses it chooses, and so does its name if that is undecided. Throws an internal error if a fixed tensor
/// would need another sharding.
///
/// Ops that are `decided` run as decided; the walk chooses for the others, from what was decided before them.
/// `expected` (if it is not null) gets for each decided op whether the walk would have chosen the same.
ShardingSolution assign(const ShardingProblem &problem, const DecidedOps &decided = {},
                        std::vector<bool> *expected = nullptr);

} // namespace cleave::partitioner
