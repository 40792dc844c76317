// ZeRO (Rajbhandari et al. 2020): ranks that differ only on axis dp each store one part of the state that they would
// otherwise all store.
#pragma once
#include "partitioner/annotate/Annotate.h"

#include "mlir/IR/BuiltinOps.h"

namespace cleave::partitioner {

/// Shardings in which parameters are stored at ZeRO stage `strategy.zero`: those of `whole` that @train reads, split
/// over dp; parameters that cannot be split are absent, and at stage 0 all are. Stages 1 and 2 split only parameters
/// with a gradient, because others have no optimizer state.
NamedShardings storedShardings(mlir::ModuleOp step, const Decisions &strategy, const NamedShardings &whole);

/// Rewrites an annotated @train and @eval for parameters stored as `stored`. Reshards gather them over dp (after a cast
/// to a narrower type), for the whole iteration at stages 1 and 2, for each segment at stage 3 (dist::attr::gathered).
/// At stages 2 and 3 their gradients are reduced and scattered over dp for each microbatch. (Stage 1 does so once per
/// iteration, in the segment `reduce`.)
void useStored(mlir::ModuleOp step, const Decisions &strategy, const NamedShardings &stored);

} // namespace cleave::partitioner
