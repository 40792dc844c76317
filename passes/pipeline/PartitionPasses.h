// The partitioner's phases as passes. With options they are for cleave-opt and the tests of IR; the pipeline gives them
// its strategy instead, which they complete, and takes what they find out beside the IR.
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

/// Cuts stages as `strategy` says and completes its `stages`. It outlives the pass, as below.
std::unique_ptr<mlir::Pass> createAssignStagesPass(partitioner::Strategy &strategy);
/// Annotates as `strategy` says and completes its `shard`.
std::unique_ptr<mlir::Pass> createAnnotatePass(partitioner::Strategy &strategy);
/// An annotated module becomes its local programs. The rest of what applying gives goes to `applied`, whose module
/// stays null.
std::unique_ptr<mlir::Pass> createApplyPass(const partitioner::Strategy &strategy, partitioner::Applied &applied);

} // namespace cleave::passes
