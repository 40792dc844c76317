// The schedule "auto" of a plan that is made for a cluster. No MLIR in this header.
#pragma once
#include "ir/GraphModule.h"
#include "passes/CompileOptions.h"

namespace cleave::passes {

/// options.strategy with the schedule that is the fastest on options.cluster and fits its memory: a published one, or
/// an order. Its stages a rank are those of the strategy; where that says 0, one, two, and two in a V are tried.
///
/// Each number of stages is compiled once without code, one microbatch at a time: the plan shows what its stages cost
/// and what memory is left for microbatches (partitioner/simulate/MeasureStages.h). Schedules are searched for these
/// costs (partitioner/pipeline/Search.h). What is nearly the shortest is compiled and simulated, and the fastest wins;
/// so it is never slower than a published schedule, as `cleave simulate` sees it.
///
/// Throws userError where the model cannot be cut into such stages, environmentError where no schedule fits.
partitioner::Strategy searchSchedule(const GraphModule &model, const CompileOptions &options);

} // namespace cleave::passes
