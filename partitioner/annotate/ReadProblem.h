// A function of the step as the choice of shardings sees it.
#pragma once
#include "partitioner/annotate/Annotate.h"
#include "partitioner/sharding/Problem.h"

namespace cleave::partitioner {

/// Reads ops, their rules, and what is demanded: inputs are split over dp along dimension 0; parameters and buffers lie
/// as in `named`, or as the strategy's rules say, or are open; gradients and states lie as their parameter. Tensors and
/// ops are numbered as the function lists them. Throws userError for a rule or a mark that cannot be, and for fewer
/// rows than dp.
ShardingProblem readProblem(mlir::func::FuncOp func, const Strategy &strategy, const NamedShardings &named);

} // namespace cleave::partitioner
