// Splits reductions that would occupy only one thread (on a GPU: a few thread blocks).
#include "ir/graph/Graph.h"
#include "passes/fuse/Rewrites.h"

#include "mlir/IR/Builders.h"

#include <algorithm>

namespace cleave::passes {

namespace {

using Dims = llvm::SmallVector<int64_t>;

/// How a reduction is split: dimensions [first, last), merged, become (parts, rest).
struct Cut {
  int64_t first = -1, last = -1, parts = 0;
};

/// Input shape and reduced dimensions.
struct Reduction {
  llvm::ArrayRef<int64_t> shape;
  llvm::ArrayRef<int64_t> dims;
  int64_t elements, results;
  bool keepsLast() const { return dims.empty() || dims.back() + 1 != static_cast<int64_t>(shape.size()); }
};

/// For a few threads: in the first dimension that has one, the divisor between 8 and 64 nearest to 32. Sums of columns
/// then read whole rows of memory; a kernel that divides the columns reads a few neighbours in each row, which the
/// processor does not prefetch (a third of the memory's bandwidth with 1,024 columns, measured).
Cut cutForCpu(const Reduction &r) {
  constexpr int64_t fewColumns = 4096;
  const bool few = r.results < 8 || (r.keepsLast() && r.results <= fewColumns);
  if (r.elements < 65536 || !few)
    return {};
  for (int64_t d : r.dims)
    for (int64_t away = 0; away <= 32; ++away)
      for (int64_t parts : {32 - away, 32 + away})
        if (parts >= 8 && parts <= 64 && r.shape[d] % parts == 0)
          return {d, d + 1, parts};
  return {};
}

std::vector<int64_t> divisors(int64_t n) {
  std::vector<int64_t> list;
  for (int64_t i = 1; i * i <= n; ++i)
    if (n % i == 0) {
      list.push_back(i);
      if (i * i < n)
        list.push_back(n / i);
    }
  return list;
}

/// Splits adjacent reduced dimensions into a number of parts whose ratio to `wanted` is closest to 1, at most a factor
/// of four. The split is inside one dimension, so that the tensor's producer can be split in the same way.
Cut cutRun(const Reduction &r, int64_t first, int64_t last, int64_t wanted) {
  constexpr double farthest = 4;
  constexpr int64_t leastNeighbours = 64; // contiguous elements that must stay together
  int64_t rest = 1;
  for (int64_t d = first; d < last; ++d)
    rest *= r.shape[d];
  const bool neighbours = last == static_cast<int64_t>(r.shape.size());
  Cut best;
  double nearest = farthest;
  for (int64_t d = first, before = 1; d < last; before *= r.shape[d++])
    for (int64_t parts : divisors(r.shape[d])) {
      const int64_t all = before * parts;
      const double away = all < wanted ? static_cast<double>(wanted) / static_cast<double>(all)
                                       : static_cast<double>(all) / static_cast<double>(wanted);
      if (all < 2 || away > nearest || (neighbours && rest / all < leastNeighbours))
        continue;
      if (away < nearest || best.first < 0)
        best = {first, last, all};
      nearest = away;
    }
  return best;
}

/// For a GPU: a few hundred thread blocks, each with enough work; a block processes a row or 256 columns.
Cut cutForGpu(const Reduction &r) {
  constexpr int64_t rowBlocks = 512, columnBlocks = 396, columnsOfBlock = 256, fewRows = 128;
  const int64_t length = r.elements / std::max<int64_t>(r.results, 1);
  const int64_t groups = r.keepsLast() ? (r.results + columnsOfBlock - 1) / columnsOfBlock : r.results;
  const int64_t enough = r.keepsLast() ? 64 : 4096; // minimum number of elements of a result per block
  const bool slow = r.keepsLast() ? r.elements >= 1 << 17 : length >= (r.results < 8 ? 1 << 16 : 1 << 17);
  const int64_t parts = (r.keepsLast() ? columnBlocks * columnsOfBlock : rowBlocks) / std::max<int64_t>(r.results, 1);
  const int64_t wanted = std::min(parts, length / enough);
  if (!slow || groups >= fewRows || wanted < 2)
    return {};
  for (size_t i = 0, next = 0; i < r.dims.size(); i = next) {
    for (next = i + 1; next < r.dims.size() && r.dims[next] == r.dims[next - 1] + 1;)
      ++next;
    if (Cut cut = cutRun(r, r.dims[i], r.dims[next - 1] + 1, wanted); cut.first >= 0)
      return cut;
  }
  return {};
}

mlir::Value castTo(mlir::OpBuilder &b, mlir::Location loc, mlir::Value value, mlir::Type element) {
  auto type = mlir::cast<mlir::RankedTensorType>(value.getType());
  return type.getElementType() == element ? value : ir::CastOp::create(b, loc, type.clone(element), value).getResult();
}

void split(ir::ReduceOp op, bool gpu) {
  auto type = mlir::cast<mlir::RankedTensorType>(op.getInput().getType());
  auto result = mlir::cast<mlir::RankedTensorType>(op.getResult().getType());
  const Reduction reduction{type.getShape(), op.getDims(), type.getNumElements(), result.getNumElements()};
  const Cut cut = gpu ? cutForGpu(reduction) : cutForCpu(reduction);
  if (cut.first < 0)
    return;
  int64_t rest = 1;
  for (int64_t d = cut.first; d < cut.last; ++d)
    rest *= type.getDimSize(d);
  rest /= cut.parts;
  mlir::OpBuilder b(op);
  mlir::Value input = op.getInput();
  // The first reduction: over rest and the other dims.
  const int64_t joined = cut.last - cut.first;
  const bool asItIs = rest == 1 && joined == 1 && op.getDims().size() > 1;
  Dims first;
  for (int64_t d : op.getDims())
    if (d < cut.first || d >= cut.last)
      first.push_back(d < cut.first ? d : d - joined + (asItIs ? 1 : 2));
  if (!asItIs)
    first.push_back(cut.first + 1);
  llvm::sort(first);
  if (!asItIs) {
    Dims shape(type.getShape().take_front(cut.first));
    shape.append({cut.parts, rest});
    llvm::append_range(shape, type.getShape().drop_front(cut.last));
    auto element = mlir::cast<mlir::RankedTensorType>(input.getType()).getElementType();
    input = ir::ReshapeOp::create(b, op.getLoc(), mlir::RankedTensorType::get(shape, element), input);
  }
  mlir::Value joint = input;
  if (result.getElementTypeBitWidth() < 32 && mlir::isa<mlir::FloatType>(result.getElementType()))
    input = castTo(b, op.getLoc(), input, b.getF32Type()); // partial results are not rounded
  auto partial = ir::ReduceOp::create(b, op.getLoc(), op.getKind(), input, first);
  int64_t before =
      std::count_if(op.getDims().begin(), op.getDims().end(), [&](int64_t other) { return other < cut.first; });
  auto total = ir::ReduceOp::create(b, op.getLoc(), op.getKind(), partial.getResult(),
                                    llvm::ArrayRef<int64_t>{cut.first - before});
  mlir::Value final = castTo(b, op.getLoc(), total.getResult(), result.getElementType());
  for (mlir::NamedAttribute attribute : op->getDiscardableAttrs())
    final.getDefiningOp()->setDiscardableAttr(attribute.getName(), attribute.getValue());
  for (mlir::Value made : llvm::SmallVector<mlir::Value>{joint, input, partial.getResult(), total.getResult()})
    if (made != op.getInput() && made.getDefiningOp() != final.getDefiningOp())
      ir::copyOrigin(op, made.getDefiningOp());
  op.getResult().replaceAllUsesWith(final);
  op.erase();
}

} // namespace

void splitReductions(mlir::Block &block, bool gpu) {
  for (mlir::Operation &op : llvm::make_early_inc_range(block))
    if (auto reduce = mlir::dyn_cast<ir::ReduceOp>(op))
      split(reduce, gpu);
}

} // namespace cleave::passes
