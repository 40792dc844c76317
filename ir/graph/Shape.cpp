// Ops that move elements: type inference, verifiers, folders, canonicalisation.
#include "ir/graph/Constraints.h"

#include "mlir/IR/PatternMatch.h"

#include <numeric>

using namespace mlir;
using namespace cleave::ir;

// ---- broadcast, reduce, reshape ------------------------------------------------------------------------------------

LogicalResult RandomUniformOp::verify() {
  const Type element = getType().getElementType();
  if (getAtLeast() ? !element.isInteger(1) : !isa<FloatType>(element))
    return emitOpError("C1: the result is ") << element << (getAtLeast() ? " with" : " without") << " at_least";
  return success();
}

LogicalResult BroadcastOp::verify() {
  auto from = shapeOf(getInput()), to = getType().getShape();
  if (getDims().size() != from.size() || !increasesWithin(getDims(), to.size()))
    return emitOpError("C1: dims ") << shapeText(getDims()) << " are not " << from.size()
                                    << " strictly increasing dimensions of the result";
  for (auto [i, dim] : llvm::enumerate(getDims()))
    if (from[i] != to[dim])
      return emitOpError("C2: operand dimension ")
             << i << " is " << from[i] << ", result dimension " << dim << " is " << to[dim];
  if (elementOf(getInput()) != getType().getElementType())
    return emitOpError("C3: element types are ") << elementOf(getInput()) << " and " << getType().getElementType();
  return success();
}

OpFoldResult BroadcastOp::fold(FoldAdaptor adaptor) {
  if (getInput().getType() == getType())
    return getInput();
  if (auto value = splatOf(adaptor.getInput()))
    return splatAttr(getType(), *value);
  return {};
}

LogicalResult ReduceOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, ValueRange operands,
                                         DictionaryAttr attributes, OpaqueProperties properties, RegionRange regions,
                                         SmallVectorImpl<Type> &types) {
  Adaptor op(operands, attributes, properties, regions);
  auto shape = shapeOf(op.getInput());
  if (!increasesWithin(op.getDims(), shape.size()))
    return broken(loc, getOperationName(), "C1: dims do not increase strictly within [0, ", shape.size(), ")");
  SmallVector<int64_t> kept;
  for (int64_t i = 0; i < (int64_t)shape.size(); ++i)
    if (!llvm::is_contained(op.getDims(), i))
      kept.push_back(shape[i]);
  types.push_back(RankedTensorType::get(kept, elementOf(op.getInput())));
  return success();
}

OpFoldResult ReduceOp::fold(FoldAdaptor) { return getDims().empty() ? OpFoldResult(getInput()) : OpFoldResult(); }

LogicalResult ReshapeOp::verify() {
  if (tensorType(getInput()).getNumElements() != getType().getNumElements())
    return emitOpError("C1: the operand has ")
           << tensorType(getInput()).getNumElements() << " elements, the result " << getType().getNumElements();
  if (elementOf(getInput()) != getType().getElementType())
    return emitOpError("C2: element types are ") << elementOf(getInput()) << " and " << getType().getElementType();
  return success();
}

OpFoldResult ReshapeOp::fold(FoldAdaptor adaptor) {
  if (getInput().getType() == getType())
    return getInput();
  if (auto constant = dyn_cast_or_null<DenseElementsAttr>(adaptor.getInput()))
    return constant.reshape(getType());
  return {};
}

namespace {
struct ReshapeOfReshape : OpRewritePattern<ReshapeOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ReshapeOp op, PatternRewriter &rewriter) const override {
    auto inner = op.getInput().getDefiningOp<ReshapeOp>();
    if (!inner)
      return failure();
    rewriter.modifyOpInPlace(op, [&] { op.getInputMutable().assign(inner.getInput()); });
    return success();
  }
};

struct TransposeOfTranspose : OpRewritePattern<TransposeOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(TransposeOp op, PatternRewriter &rewriter) const override {
    auto inner = op.getInput().getDefiningOp<TransposeOp>();
    if (!inner)
      return failure();
    SmallVector<int64_t> joined;
    for (int64_t dim : op.getPermutation())
      joined.push_back(inner.getPermutation()[dim]);
    rewriter.modifyOpInPlace(op, [&] {
      op.getInputMutable().assign(inner.getInput());
      op.setPermutation(joined);
    });
    return success();
  }
};
} // namespace

void ReshapeOp::getCanonicalizationPatterns(RewritePatternSet &set, MLIRContext *context) {
  set.add<ReshapeOfReshape>(context);
}
void TransposeOp::getCanonicalizationPatterns(RewritePatternSet &set, MLIRContext *context) {
  set.add<TransposeOfTranspose>(context);
}

// ---- transpose, slice, pad, concat ---------------------------------------------------------------------------------

LogicalResult TransposeOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, ValueRange operands,
                                            DictionaryAttr attributes, OpaqueProperties properties, RegionRange regions,
                                            SmallVectorImpl<Type> &types) {
  Adaptor op(operands, attributes, properties, regions);
  auto shape = shapeOf(op.getInput());
  SmallVector<int64_t> sorted(op.getPermutation());
  llvm::sort(sorted);
  SmallVector<int64_t> identity(shape.size());
  std::iota(identity.begin(), identity.end(), 0);
  if (sorted != identity)
    return broken(loc, getOperationName(), "C1: not a permutation of [0, ", shape.size(), ")");
  SmallVector<int64_t> result;
  for (int64_t dim : op.getPermutation())
    result.push_back(shape[dim]);
  types.push_back(RankedTensorType::get(result, elementOf(op.getInput())));
  return success();
}

OpFoldResult TransposeOp::fold(FoldAdaptor adaptor) {
  if (llvm::is_sorted(getPermutation()))
    return getInput();
  if (auto value = splatOf(adaptor.getInput()))
    return splatAttr(getType(), *value);
  return {};
}

LogicalResult SliceOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, ValueRange operands,
                                        DictionaryAttr attributes, OpaqueProperties properties, RegionRange regions,
                                        SmallVectorImpl<Type> &types) {
  Adaptor op(operands, attributes, properties, regions);
  auto shape = shapeOf(op.getInput());
  auto starts = op.getStarts(), sizes = op.getSizes();
  if (starts.size() != shape.size() || sizes.size() != shape.size())
    return broken(loc, getOperationName(), "C1: the rank is ", shape.size(), ", starts has ", starts.size(),
                  " values and sizes ", sizes.size());
  for (size_t i = 0; i < shape.size(); ++i)
    if (starts[i] < 0 || sizes[i] < 1 || sizes[i] > shape[i] - starts[i])
      return broken(loc, getOperationName(), "C2: [", starts[i], ", ", starts[i], " + ", sizes[i],
                    ") is not within dimension ", i, " of size ", shape[i]);
  types.push_back(RankedTensorType::get(sizes, elementOf(op.getInput())));
  return success();
}

OpFoldResult SliceOp::fold(FoldAdaptor adaptor) {
  if (getInput().getType() == getType())
    return getInput();
  if (auto value = splatOf(adaptor.getInput()))
    return splatAttr(getType(), *value);
  return {};
}

LogicalResult PadOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, ValueRange operands,
                                      DictionaryAttr attributes, OpaqueProperties properties, RegionRange regions,
                                      SmallVectorImpl<Type> &types) {
  Adaptor op(operands, attributes, properties, regions);
  SmallVector<int64_t> shape(shapeOf(op.getInput()));
  auto low = op.getLow(), high = op.getHigh();
  if (low.size() != shape.size() || high.size() != shape.size())
    return broken(loc, getOperationName(), "C1: the rank is ", shape.size(), ", low has ", low.size(),
                  " values and high ", high.size());
  for (size_t i = 0; i < shape.size(); ++i) {
    constexpr int64_t most = int64_t(1) << 46; // a size
    if (low[i] < 0 || high[i] < 0 || low[i] > most || high[i] > most || shape[i] > most)
      return broken(loc, getOperationName(), "C1: dimension ", i, " is padded by ", low[i], " and ", high[i]);
    shape[i] += low[i] + high[i];
  }
  types.push_back(RankedTensorType::get(shape, elementOf(op.getInput())));
  return success();
}

LogicalResult ConcatOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, ValueRange operands,
                                         DictionaryAttr attributes, OpaqueProperties properties, RegionRange regions,
                                         SmallVectorImpl<Type> &types) {
  Adaptor op(operands, attributes, properties, regions);
  if (op.getInputs().empty())
    return broken(loc, getOperationName(), "C1: no operand");
  auto first = tensorType(op.getInputs()[0]);
  int64_t dim = op.getDim();
  if (dim < 0 || dim >= first.getRank())
    return broken(loc, getOperationName(), "C2: dim ", dim, " is not in [0, ", first.getRank(), ")");
  SmallVector<int64_t> shape(first.getShape());
  shape[dim] = 0;
  for (Value input : op.getInputs()) {
    SmallVector<int64_t> other(shapeOf(input));
    int64_t along = dim < (int64_t)other.size() ? other[dim] : 0;
    if (dim < (int64_t)other.size())
      other[dim] = shape[dim];
    if (other != shape || elementOf(input) != first.getElementType())
      return broken(loc, getOperationName(), "C3: ", tensorType(input), " does not continue ", first,
                    " along dimension ", dim);
    shape[dim] += along;
  }
  types.push_back(RankedTensorType::get(shape, first.getElementType()));
  return success();
}

OpFoldResult ConcatOp::fold(FoldAdaptor) {
  return getInputs().size() == 1 ? OpFoldResult(getInputs()[0]) : OpFoldResult();
}

// ---- gather, scatter_add, embedding --------------------------------------------------------------------------------

static bool equalBut(ArrayRef<int64_t> x, ArrayRef<int64_t> y, int64_t dim) {
  if (x.size() != y.size())
    return false;
  for (int64_t i = 0; i < (int64_t)x.size(); ++i)
    if (i != dim && x[i] != y[i])
      return false;
  return true;
}

LogicalResult GatherOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, ValueRange operands,
                                         DictionaryAttr attributes, OpaqueProperties properties, RegionRange regions,
                                         SmallVectorImpl<Type> &types) {
  Adaptor op(operands, attributes, properties, regions);
  auto input = shapeOf(op.getInput()), index = shapeOf(op.getIndex());
  int64_t dim = op.getDim();
  if (input.size() != index.size())
    return broken(loc, getOperationName(), "C1: ranks are ", input.size(), " and ", index.size());
  if (dim < 0 || dim >= (int64_t)input.size())
    return broken(loc, getOperationName(), "C2: dim ", dim, " is not in [0, ", input.size(), ")");
  if (!equalBut(input, index, dim))
    return broken(loc, getOperationName(), "C3: shapes ", shapeText(input), " and ", shapeText(index),
                  " differ in a dimension other than ", dim);
  if (!elementOf(op.getIndex()).isInteger(32))
    return broken(loc, getOperationName(), "C4: the index is ", elementOf(op.getIndex()), ", not i32");
  types.push_back(RankedTensorType::get(index, elementOf(op.getInput())));
  return success();
}

LogicalResult ScatterAddOp::verify() {
  auto grad = shapeOf(getGrad()), index = shapeOf(getIndex());
  int64_t dim = getDim();
  if (grad != index)
    return emitOpError("C1: grad is ") << shapeText(grad) << ", index " << shapeText(index);
  if (dim < 0 || dim >= (int64_t)grad.size())
    return emitOpError("C2: dim ") << dim << " is not in [0, " << grad.size() << ")";
  if (!equalBut(grad, getType().getShape(), dim))
    return emitOpError("C3: grad is ") << shapeText(grad) << ", the result " << shapeText(getType().getShape());
  return success();
}

LogicalResult EmbeddingOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, ValueRange operands,
                                            DictionaryAttr attributes, OpaqueProperties properties, RegionRange regions,
                                            SmallVectorImpl<Type> &types) {
  Adaptor op(operands, attributes, properties, regions);
  auto table = shapeOf(op.getTable());
  if (table.size() != 2)
    return broken(loc, getOperationName(), "C1: the table has rank ", table.size(), ", not 2");
  if (!elementOf(op.getIds()).isInteger(32))
    return broken(loc, getOperationName(), "C2: ids are ", elementOf(op.getIds()), ", not i32");
  SmallVector<int64_t> shape(shapeOf(op.getIds()));
  shape.push_back(table[1]);
  types.push_back(RankedTensorType::get(shape, elementOf(op.getTable())));
  return success();
}

LogicalResult cleave::ir::checkEmbeddingGrad(Operation *op, Value grad, Value ids, Value result) {
  SmallVector<int64_t> expected(shapeOf(ids));
  const ArrayRef<int64_t> from = shapeOf(grad), to = shapeOf(result);
  expected.push_back(from.empty() ? 0 : from.back());
  if (ArrayRef<int64_t>(expected) != from)
    return op->emitOpError("C1: grad is ") << shapeText(from) << ", ids " << shapeText(shapeOf(ids));
  if (to.size() != 2 || to[1] != from.back())
    return op->emitOpError("C2: the result is ") << shapeText(to) << ", the width " << from.back();
  return success();
}

LogicalResult EmbeddingGradOp::verify() { return checkEmbeddingGrad(*this, getGrad(), getIds(), getResult()); }
