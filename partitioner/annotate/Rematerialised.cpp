#include "partitioner/annotate/Rematerialised.h"

#include "ir/dist/Dist.h"
#include "ir/graph/Graph.h"

using namespace mlir;

namespace cleave::partitioner {

/// Whether a forward op casts a half type to f32. The backward pass stashes the half value instead of the result.
static bool isWidening(ir::CastOp cast) {
  Type from = getElementTypeOrSelf(cast.getInput());
  return (from.isF16() || from.isBF16()) && getElementTypeOrSelf(cast.getResult()).isF32() &&
         !cast->hasAttr(ir::attr::phase);
}

bool isRematerialised(Operation *op, bool otherStage) {
  if (isa<ir::ConstantOp, ir::IotaOp, ir::BroadcastOp>(op) || op->hasAttr(dist::attr::gathered))
    return true;
  if (auto cast = dyn_cast<ir::CastOp>(op); cast && (isa<BlockArgument>(cast.getInput()) || isWidening(cast)))
    return true; // cast of a parameter, or widening of an activation
  return !otherStage && isa<ir::ReshapeOp, ir::TransposeOp, ir::SliceOp>(op);
}

} // namespace cleave::partitioner
