// Searches for the schedule "auto" of a plan for a cluster. No MLIR in this header.
#pragma once
#include "ir/GraphModule.h"
#include "partitioner/cluster/Cluster.h"
#include "passes/CompileOptions.h"

namespace cleave::passes {

/// The strategy of the options, whose schedule is open ("auto" without an order), with the fastest schedule on the
/// cluster that fits its memory: a published schedule, or an order. Each rank runs as many stages as the strategy says;
/// 0 means that one, two, and two in a V are tried.
///
/// For each number of stages, a plan that runs one microbatch at a time is compiled without code: it gives the costs of
/// the stages and the memory left for microbatches (partitioner/simulate/MeasureStages.h). Schedules are searched with
/// these costs (partitioner/pipeline/Search.h). Those that are nearly as short as the shortest, published ones
/// included, are compiled and simulated, and the fastest is chosen.
///
/// Throws userError if the model cannot be cut into such stages, environmentError if no schedule fits.
partitioner::Decisions searchSchedule(const GraphModule &model, const CompileOptions &options,
                                      const partitioner::Cluster &cluster);

} // namespace cleave::passes
