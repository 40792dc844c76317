// The partitioner's phases as passes. cleave-opt and IR tests create them from options. The pipeline creates them with
// its strategy instead, which they complete, and receives their results other than the IR.
#pragma once
#include "partitioner/apply/Applied.h"

#include <memory>

namespace mlir {
class Pass;
}

namespace cleave::passes {

// The passes and their options: passes/Passes.td.
#define GEN_PASS_DECL_LIBRARYEPILOGUESPASS
#define GEN_PASS_DECL_ASSIGNSTAGESPASS
#define GEN_PASS_DECL_FORWARDASTRAINPASS
#define GEN_PASS_DECL_ANNOTATEPASS
#define GEN_PASS_DECL_APPLYPASS
#include "passes/Passes.h.inc"

/// Cuts stages by `strategy` and completes its `stages`. `strategy` must outlive the pass, also for the passes below.
std::unique_ptr<mlir::Pass> createAssignStagesPass(partitioner::Strategy &strategy);
/// Annotates by `strategy` and completes its `shard`.
std::unique_ptr<mlir::Pass> createAnnotatePass(partitioner::Strategy &strategy);
/// Replaces an annotated module by its local programs. The other results of applying the strategy go to `applied`,
/// whose module stays null.
std::unique_ptr<mlir::Pass> createApplyPass(const partitioner::Strategy &strategy, partitioner::Applied &applied);

} // namespace cleave::passes
