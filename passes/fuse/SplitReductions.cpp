// Splitting reductions that one thread (on a GPU: a few blocks of threads) would have to do alone.
#include "ir/graph/Graph.h"
#include "passes/fuse/Steps.h"

#include "mlir/IR/Builders.h"

#include <algorithm>

namespace cleave::passes {

namespace {

using Dims = llvm::SmallVector<int64_t>;

/// Where a reduction is cut: dimension `dim` becomes (parts, rest).
struct Cut {
  int64_t dim = -1, parts = 0;
};

/// What is reduced to what.
struct Reduction {
  llvm::ArrayRef<int64_t> shape;
  llvm::ArrayRef<int64_t> dims;
  int64_t elements, results;
  bool keepsLast() const { return dims.empty() || dims.back() + 1 != static_cast<int64_t>(shape.size()); }
};

/// For a few threads: the divisor between 8 and 64 nearest to 32, of the first dimension that has one.
Cut cutForCpu(const Reduction &r) {
  const bool few = r.results < 8 || (r.keepsLast() && r.results <= 256); // columns are vectors
  if (r.elements < 65536 || !few)
    return {};
  for (int64_t d : r.dims)
    for (int64_t away = 0; away <= 32; ++away)
      for (int64_t parts : {32 - away, 32 + away})
        if (parts >= 8 && parts <= 64 && r.shape[d] % parts == 0)
          return {d, parts};
  return {};
}

/// The divisor of `extent` nearest to `wanted` by ratio, at most four times away; 0 where there is none.
int64_t divisorNear(int64_t extent, int64_t wanted) {
  for (int64_t less = wanted, more = wanted; more <= 4 * wanted; more += 1, less = wanted * wanted / more)
    for (int64_t parts : {less, more})
      if (parts > 1 && parts <= extent && extent % parts == 0)
        return parts;
  return 0;
}

/// For a GPU: a few hundred blocks of threads, where a block takes a row or 256 columns, each with enough to do.
Cut cutForGpu(const Reduction &r) {
  constexpr int64_t rowBlocks = 512, columnBlocks = 396, columnsOfBlock = 256, fewRows = 128;
  const int64_t length = r.elements / std::max<int64_t>(r.results, 1);
  const int64_t groups = r.keepsLast() ? (r.results + columnsOfBlock - 1) / columnsOfBlock : r.results;
  const int64_t enough = r.keepsLast() ? 64 : 4096; // elements of a result that are worth a block
  const bool slow = r.keepsLast() ? r.elements >= 1 << 17 : length >= (r.results < 8 ? 1 << 16 : 1 << 17);
  const int64_t parts = (r.keepsLast() ? columnBlocks * columnsOfBlock : rowBlocks) / std::max<int64_t>(r.results, 1);
  const int64_t wanted = std::min(parts, length / enough);
  if (!slow || groups >= fewRows || wanted < 2)
    return {};
  for (int64_t d : r.dims) {
    const bool last = d + 1 == static_cast<int64_t>(r.shape.size());
    const int64_t parts = divisorNear(r.shape[d], wanted);
    if (parts && (!last || r.shape[d] / parts >= 64)) // neighbours in memory stay together
      return {d, parts};
  }
  return {};
}

mlir::Value castTo(mlir::OpBuilder &b, mlir::Location loc, mlir::Value value, mlir::Type element) {
  auto type = mlir::cast<mlir::RankedTensorType>(value.getType());
  return type.getElementType() == element ? value : ir::CastOp::create(b, loc, type.clone(element), value).getResult();
}

/// Neighbours that are all reduced become one dimension, which has more divisors.
void joinReducedDims(ir::ReduceOp op) {
  auto type = mlir::cast<mlir::RankedTensorType>(op.getInput().getType());
  Dims shape, dims;
  bool before = false; // the dimension before is reduced
  for (int64_t d = 0; d < type.getRank(); ++d) {
    const bool reduced = llvm::is_contained(op.getDims(), d);
    if (reduced && before) {
      shape.back() *= type.getDimSize(d);
      continue;
    }
    if (reduced)
      dims.push_back(static_cast<int64_t>(shape.size()));
    shape.push_back(type.getDimSize(d));
    before = reduced;
  }
  if (dims.size() == op.getDims().size())
    return;
  mlir::OpBuilder b(op);
  auto joined = ir::ReshapeOp::create(b, op.getLoc(), type.clone(shape), op.getInput());
  ir::copyMarks(op, joined);
  op.getInputMutable().assign(joined);
  op.setDims(dims);
}

void split(ir::ReduceOp op, bool gpu) {
  if (gpu)
    joinReducedDims(op);
  auto type = mlir::cast<mlir::RankedTensorType>(op.getInput().getType());
  auto result = mlir::cast<mlir::RankedTensorType>(op.getResult().getType());
  Dims dims(op.getDims());
  const Reduction reduction{type.getShape(), op.getDims(), type.getNumElements(), result.getNumElements()};
  const Cut cut = gpu ? cutForGpu(reduction) : cutForCpu(reduction);
  if (cut.dim < 0)
    return;
  int64_t d = cut.dim, parts = cut.parts, rest = type.getDimSize(d) / parts;
  mlir::OpBuilder b(op);
  // d becomes (parts, rest); rest and the other dims are reduced first.
  mlir::Value input = op.getInput();
  if (gpu && result.getElementTypeBitWidth() < 32 && mlir::isa<mlir::FloatType>(result.getElementType()))
    input = castTo(b, op.getLoc(), input, b.getF32Type()); // parts are not rounded
  mlir::Value whole = input;
  if (rest > 1 || dims.size() == 1) {
    Dims shape(type.getShape());
    shape[d] = parts;
    shape.insert(shape.begin() + d + 1, rest);
    auto element = mlir::cast<mlir::RankedTensorType>(input.getType()).getElementType();
    input = ir::ReshapeOp::create(b, op.getLoc(), mlir::RankedTensorType::get(shape, element), input);
    for (int64_t &other : dims)
      other += other >= d;
  } else {
    dims.erase(llvm::find(dims, d));
  }
  auto partial = ir::ReduceOp::create(b, op.getLoc(), op.getKind(), input, dims);
  int64_t before = std::count_if(op.getDims().begin(), op.getDims().end(), [&](int64_t other) { return other < d; });
  auto total =
      ir::ReduceOp::create(b, op.getLoc(), op.getKind(), partial.getResult(), llvm::ArrayRef<int64_t>{d - before});
  mlir::Value final = castTo(b, op.getLoc(), total.getResult(), result.getElementType());
  for (mlir::NamedAttribute attribute : op->getDiscardableAttrs())
    final.getDefiningOp()->setDiscardableAttr(attribute.getName(), attribute.getValue());
  if (mlir::Attribute path = op->getAttr(ir::attr::path))
    for (mlir::Value made : llvm::SmallVector<mlir::Value>{whole, input, partial.getResult(), total.getResult()})
      if (made != op.getInput())
        made.getDefiningOp()->setAttr(ir::attr::path, path);
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
