// The choice of shardings: a function of values.
#pragma once
#include "partitioner/sharding/Solution.h"

namespace cleave::partitioner {

/// Gives every tensor its sharding: one walk in program order that reads the rules, takes pins and marks as given, and
/// puts a reshard wherever an op needs an operand otherwise. Open arguments are split as the ops that use them first
/// choose by default; with them the names that were undecided are decided. Throws an internal error where a fixed
/// tensor would have to be split otherwise.
ShardingSolution assign(const ShardingProblem &problem);

} // namespace cleave::partitioner
