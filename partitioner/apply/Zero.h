// ZeRO (Rajbhandari et al. 2020): ranks that differ only on axis dp each store one part of the state that they would
// otherwise all store.
#pragma once
#include "partitioner/annotate/Annotate.h"

#include "mlir/IR/BuiltinOps.h"

namespace cleave::partitioner {

/// Shardings in which parameters are stored at ZeRO stage `strategy.zero`: those of `whole` that @train reads, split
/// over dp; parameters that cannot be split are absent. Stages 1 and 2 split only parameters with a gradient, because
/// others have no optimizer state.
NamedShardings storedShardings(mlir::func::FuncOp train, const Strategy &strategy, const NamedShardings &whole);

/// Rewrites an annotated @train or @eval for parameters stored as `stored`: reshards gather them over dp (after a cast
/// to a narrower type), for the whole iteration at stages 1 and 2, for each segment at stage 3 (dist::attr::gathered).
void gatherParameters(mlir::func::FuncOp func, const Strategy &strategy, const NamedShardings &stored);

/// Rewrites an annotated @train to reduce and scatter the gradients of parameters stored as `stored` over dp for each
/// microbatch, as stages 2 and 3 do. (Stage 1 does so once per iteration, in the segment `reduce`.)
void scatterGradients(mlir::func::FuncOp train, const NamedShardings &stored);

} // namespace cleave::partitioner
