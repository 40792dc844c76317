// Chooses shardings, on plain values without IR.
#pragma once
#include "partitioner/sharding/Solution.h"

namespace cleave::partitioner {

/// Gives every tensor a sharding, in one walk in program order. Pinned shardings and marks are taken as given; a
/// reshard is added where an op needs an operand under another sharding. An open argument gets the sharding that the
/// first op that uses it chooses, and so does its name if that is undecided. Throws an internal error if a fixed tensor
/// would need another sharding.
ShardingSolution assign(const ShardingProblem &problem);

} // namespace cleave::partitioner
