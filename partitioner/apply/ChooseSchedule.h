// Searches the schedule "auto" of a plan that is not made for a cluster.
#pragma once
#include "partitioner/strategy/Strategy.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::partitioner {

/// Sets what the schedule "auto" of `strategy` is, for the annotated @train: a published schedule, or an order. The
/// search (partitioner/pipeline/Search.h) gets the work of every segment and message from an estimate, that with which
/// stages are cut: FLOPs, and a charge for each element that is written or sent. A rank may hold what `pp` microbatches
/// under way keep on all of its stages: as much as 1F1B's first rank.
void chooseSchedule(mlir::func::FuncOp train, Strategy &strategy);

} // namespace cleave::partitioner
