// Gives every tensor of a function its sharding: reads the function as a problem, solves it, writes the solution.
#pragma once
#include "ir/dist/Dist.h"
#include "ir/dist/Sharding.h"
#include "partitioner/strategy/Decisions.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <map>
#include <string>

namespace cleave::partitioner {

/// Shardings of named persistent tensors (parameters, buffers), decided in @train and kept by @eval and @update.
using NamedShardings = std::map<std::string, Sharding>;

/// Annotates `func` (dist.sharding on arguments, dist.shardings on ops, reshards). Inputs are split over dp along
/// dimension 0; parameters and buffers follow `named`, then the strategy's rules, then the default choices of the ops
/// that use them first; their shardings are added to `named`. Results of kind gradient, parameter, state and buffer
/// have the sharding of their parameter; gradients and metrics may stay partial (over dp), everything else is
/// replicated.
/// Throws userError for a rule that names an unknown dimension or axis.
void assignShardings(mlir::func::FuncOp func, const Decisions &strategy, NamedShardings &named);

/// The sharding of a value after assignShardings, valid as long as the context; and the same as an attribute.
const Sharding &shardingOf(mlir::Value value);
dist::ShardingAttr shardingAttrOf(mlir::Value value);

} // namespace cleave::partitioner
