// The sharding rule of an op of the graph dialect. The rules themselves: partitioner/sharding/Rules.h.
#pragma once
#include "partitioner/sharding/Problem.h"

#include "mlir/IR/Operation.h"

#include <optional>

namespace cleave::partitioner {

/// The kind of an op as far as its sharding is concerned.
OpKind kindOf(mlir::Operation *op);

/// The rule of an op of the graph dialect; empty for reshape, which regroups dimensions, for ops that can be computed
/// under any sharding (constant, iota, random_uniform), and for return. Throws an internal error for an unknown op.
std::optional<OpRule> ruleOf(mlir::Operation *op);

} // namespace cleave::partitioner
