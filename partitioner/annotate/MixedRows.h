// Whether the result for a row (sample) of a batch depends on the rest of the batch.
#pragma once
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::partitioner {

/// The first forward op that makes a row's terms of the loss depend on other rows of its microbatch, or on the row's
/// place in it; null if there is none, or if a microbatch is one row. Sums over rows that are results of kind loss,
/// weight or correct do not count, and neither do scalars of kind output and what only they depend on, nor ops with the
/// attribute cleave.per_microbatch if `exceptMeant`.
///
/// Found with the rules of sharding, with every row on a rank of its own. An op that combines rows then sends a
/// message. A value that every rank knows (a parameter, a constant, indices) is split over the ranks only where it has
/// a row for each row of the batch. The ops are primitives (after decompose).
mlir::Operation *opThatMixesRows(mlir::func::FuncOp function, bool exceptMeant);

} // namespace cleave::partitioner
