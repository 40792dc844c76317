// Applies a strategy to a step: deterministic, for any valid strategy from any source.
#pragma once
#include "partitioner/annotate/Annotate.h"
#include "partitioner/apply/LocalPrograms.h"

namespace cleave::partitioner {

/// Fills in what the strategy leaves open: a rule for every parameter and buffer, and for a training the schedule.
/// `strategy` is the result of assignStages.
Decisions decide(mlir::ModuleOp annotated, const Decisions &strategy, const NamedShardings &named);

/// Emits local programs with explicit collectives, messages and schedules. Deterministic, for any decisions, whoever
/// made them.
LocalPrograms apply(mlir::ModuleOp annotated, const Decisions &decisions);

} // namespace cleave::partitioner
