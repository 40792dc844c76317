// Reads a function of the step as the input of the choice of shardings.
#pragma once
#include "partitioner/annotate/Annotate.h"
#include "partitioner/sharding/Problem.h"

namespace cleave::partitioner {

/// Whether the demands of marks in the code (withSharding) are read.
enum class Marks : uint8_t { Read, Ignored };

/// Reads ops, their rules, and the demanded shardings. Inputs are split over dp along dimension 0. Parameters and
/// buffers have the sharding in `named`, or that of the strategy's rules, or are open. Gradients and states have the
/// sharding of their parameter. Tensors and ops are numbered as the function lists them. Throws userError for an
/// impossible rule or mark, and for fewer rows than dp.
ShardingProblem readProblem(mlir::func::FuncOp func, const Decisions &strategy, const NamedShardings &named,
                            Marks marks = Marks::Read);

} // namespace cleave::partitioner
