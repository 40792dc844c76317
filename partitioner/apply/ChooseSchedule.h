// Searches for the schedule "auto" of a plan that is not made for a cluster.
#pragma once
#include "partitioner/strategy/Decisions.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::partitioner {

/// Replaces the schedule "auto" of `strategy` by a published schedule or an order, for the annotated @train. The search
/// (partitioner/pipeline/Search.h) estimates the work of segments and messages as the stage cuts do: FLOPs, and a
/// charge for each element that is written or sent. Memory limit of a rank: what `pp` microbatches in flight keep on
/// all of its stages, as much as on 1F1B's first rank.
void chooseSchedule(mlir::func::FuncOp train, Decisions &strategy);

} // namespace cleave::partitioner
