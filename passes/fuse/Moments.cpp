// Computes sums of squared differences from the mean in the same pass over memory as the mean.
#include "ir/graph/Graph.h"
#include "passes/fuse/Rewrites.h"
#include "passes/rewrite/Values.h"

#include <cmath>

namespace cleave::passes {

namespace {

using Dims = llvm::SmallVector<int64_t>;

/// sum((x - mean)^2) over the same dims as mean = sum(x) / n.
struct Variance {
  ir::ReduceOp squares;
  mlir::Value x, mean;
};

/// Whether `value` is the mean of `x` over `dims`: their sum divided by a constant n, or multiplied by 1 / n.
bool isMean(mlir::Value value, mlir::Value x, llvm::ArrayRef<int64_t> dims) {
  const double count = static_cast<double>(product(shapeOf(x))) / static_cast<double>(product(shapeOf(value)));
  auto isSum = [&](mlir::Value operand) {
    auto sum = operand.getDefiningOp<ir::ReduceOp>();
    return sum && sum.getKind() == ir::ReduceKind::Sum && sum.getInput() == x && sum.getDims() == dims;
  };
  auto isSplat = [](mlir::Value operand, double number) {
    auto splat = ir::splatOf(operand);
    return splat && std::abs(*splat / number - 1) < 1e-6;
  };
  if (auto div = value.getDefiningOp<ir::DivOp>())
    return isSum(div.getLhs()) && isSplat(div.getRhs(), count);
  if (auto mul = value.getDefiningOp<ir::MulOp>())
    return (isSum(mul.getLhs()) && isSplat(mul.getRhs(), 1 / count)) ||
           (isSum(mul.getRhs()) && isSplat(mul.getLhs(), 1 / count));
  return false;
}

std::optional<Variance> varianceOf(ir::ReduceOp op) {
  auto square = op.getInput().getDefiningOp<ir::MulOp>();
  auto centred = square && square.getLhs() == square.getRhs() ? square.getLhs().getDefiningOp<ir::SubOp>() : nullptr;
  auto spread = centred ? centred.getRhs().getDefiningOp<ir::BroadcastOp>() : nullptr;
  if (op.getKind() != ir::ReduceKind::Sum || op.getDims().empty() || !spread || !isFloat(op.getResult()) ||
      spread.getDims() != llvm::ArrayRef<int64_t>(dimsExcept(rankOf(op.getInput()), op.getDims())) ||
      !isMean(spread.getInput(), centred.getLhs(), op.getDims()))
    return std::nullopt;
  return Variance{op, centred.getLhs(), spread.getInput()};
}

/// Whether the variance reads memory again: rows that fit in registers (on a CPU: in a core's cache) are read only
/// once.
bool readsAgain(Variance v, bool gpu) {
  const int64_t mostHeld = gpu ? 512 * 32 : 1 << 17;
  Dims shape(shapeOf(v.x)), dims(v.squares.getDims());
  return dims.back() + 1 != static_cast<int64_t>(shape.size()) ||
         product(shape) / std::max<int64_t>(1, product(shapeOf(v.mean))) > mostHeld;
}

/// With d = x - s, where s is an element of x and thus near the mean, so that little cancels: the mean is s + sum(d) /
/// n and the sum of squares is sum(d^2) - sum(d)^2 / n. s is in the middle: at the edges of an image, windows of
/// convolutions cover padding.
void shift(Variance v) {
  ir::ReduceOp op = v.squares;
  mlir::Operation *mean = v.mean.getDefiningOp();
  GraphBuilder e{mlir::OpBuilder(mean)};
  llvm::SmallVector<mlir::NamedAttribute> marks; // without its sharding, which does not apply to intermediate values
  for (llvm::StringRef name : {ir::attr::path, ir::attr::layer, ir::attr::role, ir::attr::phase})
    if (mlir::Attribute mark = op->getAttr(name))
      marks.emplace_back(mlir::StringAttr::get(op->getContext(), name), mark);
  e.setOrigin(op->getLoc(), marks);
  const Dims shape(shapeOf(v.x)), dims(op.getDims()), kept(shapeOf(v.mean));
  Dims starts(shape.size(), 0), sizes = shape;
  double count = 1;
  for (int64_t dim : dims) {
    count *= static_cast<double>(shape[dim]);
    starts[dim] = shape[dim] / 2;
    sizes[dim] = 1;
  }
  // Each user gets its own s, so that no kernel depends on another's.
  auto middle = [&] { return e.reshape(e.op<ir::SliceOp>(v.x, starts, sizes).getResult(), kept); };
  mlir::Value apart = e.sub(v.x, e.broadcastBack(middle(), shape, dims));
  mlir::Value sum = e.sum(apart, dims), away = e.scale(sum, 1 / count);
  mlir::Value squares = e.sub(e.sum(e.mul(apart, apart), dims), e.mul(sum, away));
  auto replace = [](mlir::Operation *before, mlir::Value after) {
    ir::copyMarks(before, after.getDefiningOp());
    before->getResult(0).replaceAllUsesWith(after);
    before->erase();
  };
  replace(op, e.max(squares, e.constantLike(squares, 0)));
  replace(mean, e.add(middle(), away));
}

} // namespace

void joinMoments(mlir::Block &block, bool gpu) {
  llvm::SmallVector<ir::ReduceOp> reductions(block.getOps<ir::ReduceOp>());
  for (ir::ReduceOp op : reductions)
    if (auto variance = varianceOf(op); variance && readsAgain(*variance, gpu))
      shift(*variance);
}

} // namespace cleave::passes
