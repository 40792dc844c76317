// Softmax and the ops built on it: logarithm, cross-entropy, accuracy. All compute in f32 after subtracting the
// maximum. Cross-entropy and accuracy emit equal ops for the label's logit, which simplification shares.
#include "passes/decompose/Rewrites.h"

namespace cleave::passes {
namespace {
using mlir::Value;
using Predicate = ir::Predicate;

struct Exponentials {
  Value shifted;     // x - max
  Value exponential; // exp(x - max)
  Value max, sum;    // without the softmax dimension
};

Exponentials exponentials(GraphBuilder &e, Value x, int64_t dim) {
  Value max = e.reduce(ir::ReduceKind::Max, x, {dim});
  Value shifted = e.sub(x, e.broadcastBack(max, shapeOf(x), {dim}));
  Value exponential = e.exp(shifted);
  return {shifted, exponential, max, e.sum(exponential, {dim})};
}

/// [rows..., classes] i1: whether the class index equals the label.
Value isLabel(GraphBuilder &e, Value logits, Value labels) {
  Dims shape = shapeOf(logits);
  int64_t last = shape.size() - 1;
  return e.compare(Predicate::Eq, e.iota(shape, last), e.broadcastBack(labels, shape, {last}));
}

/// The logit of each row's label (f32), 0 if the label is ignored.
Value labelLogit(GraphBuilder &e, Value logits, Value labels) {
  Value chosen = e.select(isLabel(e, logits, labels), logits, e.constantLike(logits, 0));
  return e.sum(chosen, {rankOf(logits) - 1});
}

Value counted(GraphBuilder &e, Value labels) { return e.compare(Predicate::Ge, labels, 0.0); }

/// Sum over all rows that count.
Value sumOfCounted(GraphBuilder &e, Value rows, Value labels) {
  Value kept = e.select(counted(e, labels), rows, e.constantLike(rows, 0));
  return e.sum(kept, dimsExcept(rankOf(rows)));
}

} // namespace

Values decomposeSoftmax(ir::SoftmaxOp op, GraphBuilder &e) {
  Value x = e.toF32(op.getInput());
  int64_t dim = op.getDim();
  Exponentials parts = exponentials(e, x, dim);
  Value inverse = e.div(e.constantLike(parts.sum, 1), parts.sum); // one division a row, not one an element
  Value y = e.mul(parts.exponential, e.broadcastBack(inverse, shapeOf(x), {dim}));
  return {e.castLike(y, op.getResult())};
}

Values decomposeLogSoftmax(ir::LogSoftmaxOp op, GraphBuilder &e) {
  Value x = e.toF32(op.getInput());
  int64_t dim = op.getDim();
  Exponentials parts = exponentials(e, x, dim);
  Value y = e.sub(parts.shifted, e.broadcastBack(e.log(parts.sum), shapeOf(x), {dim}));
  return {e.castLike(y, op.getResult())};
}

Values decomposeCrossEntropy(ir::CrossEntropyOp op, GraphBuilder &e) {
  Value x = e.toF32(op.getLogits()), labels = op.getLabels();
  Exponentials parts = exponentials(e, x, rankOf(x) - 1);
  Value lse = e.add(parts.max, e.log(parts.sum));
  Value loss = sumOfCounted(e, e.sub(lse, labelLogit(e, x, labels)), labels);
  Value weight = e.sum(e.toF32(counted(e, labels)), dimsExcept(rankOf(labels)));
  return {e.castLike(loss, op.getLoss()), e.castLike(weight, op.getWeight()), e.castLike(lse, op.getLse())};
}

Values decomposeCrossEntropyGrad(ir::CrossEntropyGradOp op, GraphBuilder &e) {
  Value x = e.toF32(op.getLogits()), labels = op.getLabels(), lse = e.toF32(op.getLse());
  Dims shape = shapeOf(x);
  int64_t last = shape.size() - 1;
  Value probability = e.exp(e.sub(x, e.broadcastBack(lse, shape, {last})));
  Value target = e.toF32(isLabel(e, x, labels));
  Value grad = e.splat(e.toF32(op.getGrad()), shapeOf(labels));
  Value rows = e.select(counted(e, labels), grad, e.constantLike(grad, 0));
  Value result = e.mul(e.sub(probability, target), e.broadcastBack(rows, shape, {last}));
  return {e.castLike(result, op.getResult())};
}

Values decomposeTopCorrect(ir::TopCorrectOp op, GraphBuilder &e) {
  Value x = e.toF32(op.getLogits()), labels = op.getLabels();
  const Dims shape = shapeOf(x);
  const int64_t last = shape.size() - 1;
  Value own = labelLogit(e, x, labels), ownEach = e.broadcastBack(own, shape, {last});
  Value notEarlier = e.compare(Predicate::Ge, e.iota(shape, last), e.broadcastBack(labels, shape, {last}));
  // The label's own class and those after it; false where either logit is NaN.
  Value after = e.max(e.compare(Predicate::Lt, x, ownEach), e.min(e.compare(Predicate::Eq, x, ownEach), notEarlier));
  Value before = e.sum(e.select(after, e.constantLike(x, 0), e.constantLike(x, 1)), {last});
  Value right =
      e.min(e.compare(Predicate::Lt, before, static_cast<double>(op.getK())), e.compare(Predicate::Eq, own, own));
  return {e.castLike(sumOfCounted(e, e.toF32(right), labels), op.getResult())};
}

} // namespace cleave::passes
