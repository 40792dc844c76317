// Recomputation: forward values that the backward pass computes again instead of keeping them.
#pragma once
#include "partitioner/strategy/Decisions.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <memory>

namespace mlir {
class Pass;
}

namespace cleave::passes {

// The pass and its options: passes/Passes.td.
#define GEN_PASS_DECL_RECOMPUTEPASS
#include "passes/Passes.h.inc"

/// Whether an op of @train belongs to the backward pass.
bool isBackward(mlir::Operation *op);

/// Rewrites @train by the strategy's rules (Decisions.h, RecomputeRule), then by recomputeNormResults.
/// `keptScores`: the devices have no fused attention, so that its backward pass needs scores that the forward pass
/// keeps; selective recomputation then runs attention again. Throws userError for a rule that matches no layer of the
/// model.
void recompute(mlir::func::FuncOp train, const partitioner::Decisions &strategy, bool keptScores);

/// Lets elementwise ops of the backward pass compute results of norms of their stage again, where the norms' gradients
/// read the norms' inputs.
void recomputeNormResults(mlir::func::FuncOp train);

} // namespace cleave::passes
