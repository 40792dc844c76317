// The partitioner's phases as passes, for cleave-opt and the IR tests. Options: mesh=dp=2,tp=2 microbatches=M.
#pragma once
#include <memory>

namespace mlir {
class Pass;
}

namespace cleave::passes {

/// `--assign-stages`: cleave.stage on every op of @forward and @eval.
std::unique_ptr<mlir::Pass> createAssignStagesPass();
/// `--annotate`: shardings on every value of @train, @update and @eval, and reshards between them.
std::unique_ptr<mlir::Pass> createAnnotatePass();
/// `--apply`: the module becomes its local programs.
std::unique_ptr<mlir::Pass> createApplyPass();

} // namespace cleave::passes
