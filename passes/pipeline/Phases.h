// The parts of the pipeline, for users that need the IR between them: tests, `check`, documentation.
#pragma once
#include "partitioner/apply/LocalPrograms.h"
#include "passes/pipeline/Pipeline.h"

namespace cleave::passes {

/// Gives every value of a step a sharding, and decides what `staged`, the strategy with its stages, leaves open.
partitioner::Decisions annotate(mlir::ModuleOp step, const partitioner::Decisions &staged);

/// Runs everything up to the local programs; `model` becomes the step on global shapes.
partitioner::LocalPrograms applyStrategy(GraphModule &model, const CompileOptions &options);

/// Converts local programs, which are rewritten, to the bytes of a plan.
std::vector<uint8_t> lowerToPlan(partitioner::LocalPrograms &applied, const CompileOptions &options,
                                 const CompileContext &context = {});

} // namespace cleave::passes
