// Half-type sums that are only widened, such as gradients of biases, become f32 sums without rounding in between. This
// is a step of fusion, because GPU libraries combine some of these sums with a product before.
#include "ir/graph/Graph.h"
#include "passes/fuse/Rewrites.h"

#include "mlir/IR/Builders.h"

namespace cleave::passes {

namespace {

/// The cast to f32 that is the only user of a half-type sum.
ir::CastOp wideningOf(ir::ReduceOp sum) {
  mlir::Type type = mlir::getElementTypeOrSelf(sum.getResult());
  if (sum.getKind() != ir::ReduceKind::Sum || !(type.isF16() || type.isBF16()) || !sum.getResult().hasOneUse())
    return {};
  auto cast = mlir::dyn_cast<ir::CastOp>(*sum.getResult().user_begin());
  return cast && mlir::getElementTypeOrSelf(cast.getResult()).isF32() ? cast : ir::CastOp();
}

} // namespace

void widenSums(mlir::Block &block) {
  for (ir::ReduceOp sum : llvm::to_vector(block.getOps<ir::ReduceOp>())) {
    ir::CastOp cast = wideningOf(sum);
    if (!cast)
      continue;
    mlir::OpBuilder b(sum);
    auto type = mlir::cast<mlir::RankedTensorType>(sum.getInput().getType()).clone(b.getF32Type());
    auto wide = ir::CastOp::create(b, sum.getLoc(), type, sum.getInput());
    ir::copyOrigin(sum, wide);
    auto made = ir::ReduceOp::create(b, sum.getLoc(), sum.getKind(), wide.getResult(), sum.getDims());
    ir::copyMarks(cast, made);
    cast.getResult().replaceAllUsesWith(made.getResult());
    cast.erase();
    sum.erase();
  }
}

} // namespace cleave::passes
