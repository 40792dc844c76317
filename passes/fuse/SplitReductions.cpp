// Splitting reductions that one thread would have to do alone.
#include "ir/graph/Graph.h"
#include "passes/fuse/Steps.h"

#include "mlir/IR/Builders.h"

#include <algorithm>

namespace cleave::passes {

namespace {

using Dims = llvm::SmallVector<int64_t>;

/// Parts to cut a dimension into: the divisor between 8 and 64 nearest to 32, else 0.
int64_t partsOf(int64_t extent) {
  for (int64_t away = 0; away <= 32; ++away)
    for (int64_t parts : {32 - away, 32 + away})
      if (parts >= 8 && parts <= 64 && extent % parts == 0)
        return parts;
  return 0;
}

bool tooFewResults(llvm::ArrayRef<int64_t> shape, const Dims &dims, int64_t results) {
  bool lastKept = dims.empty() || dims.back() + 1 != static_cast<int64_t>(shape.size());
  return results < 8 || (lastKept && results <= 256); // columns are vectors
}

void split(ir::ReduceOp op) {
  auto type = mlir::cast<mlir::RankedTensorType>(op.getInput().getType());
  auto result = mlir::cast<mlir::RankedTensorType>(op.getResult().getType());
  Dims dims(op.getDims());
  if (type.getNumElements() < 65536 || !tooFewResults(type.getShape(), dims, result.getNumElements()))
    return;
  auto best = std::find_if(dims.begin(), dims.end(), [&](int64_t d) { return partsOf(type.getDimSize(d)) != 0; });
  if (best == dims.end())
    return;
  int64_t d = *best, parts = partsOf(type.getDimSize(d)), rest = type.getDimSize(d) / parts;
  mlir::OpBuilder b(op);
  // d becomes (parts, rest); rest and the other dims are reduced first.
  mlir::Value input = op.getInput();
  if (rest > 1 || dims.size() == 1) {
    Dims shape(type.getShape());
    shape[d] = parts;
    shape.insert(shape.begin() + d + 1, rest);
    input = ir::ReshapeOp::create(b, op.getLoc(), mlir::RankedTensorType::get(shape, type.getElementType()), input);
    for (int64_t &other : dims)
      other += other >= d;
  } else {
    dims.erase(best);
  }
  auto partial = ir::ReduceOp::create(b, op.getLoc(), op.getKind(), input, dims);
  int64_t before = std::count_if(op.getDims().begin(), op.getDims().end(), [&](int64_t other) { return other < d; });
  auto total =
      ir::ReduceOp::create(b, op.getLoc(), op.getKind(), partial.getResult(), llvm::ArrayRef<int64_t>{d - before});
  mlir::Operation *last = total;
  for (mlir::NamedAttribute attribute : op->getDiscardableAttrs())
    last->setDiscardableAttr(attribute.getName(), attribute.getValue());
  if (mlir::Attribute path = op->getAttr(ir::attr::path)) {
    partial->setAttr(ir::attr::path, path);
    if (auto reshape = input.getDefiningOp<ir::ReshapeOp>(); reshape && input != op.getInput())
      reshape->setAttr(ir::attr::path, path);
  }
  op.getResult().replaceAllUsesWith(total.getResult());
  op.erase();
}

} // namespace

void splitReductions(mlir::Block &block) {
  for (mlir::Operation &op : llvm::make_early_inc_range(block))
    if (auto reduce = mlir::dyn_cast<ir::ReduceOp>(op))
      split(reduce);
}

} // namespace cleave::passes
