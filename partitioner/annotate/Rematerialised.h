// Values that are computed where they are read instead of being kept.
#pragma once
#include "mlir/IR/Operation.h"

namespace cleave::partitioner {

/// Whether an op is rematerialised at each use instead of being stashed or sent: constants, iota, broadcasts,
/// parameters in another type or gathered over dp, and within a stage also views (reshape, transpose, slice).
bool isRematerialised(mlir::Operation *op, bool otherStage);

} // namespace cleave::partitioner
