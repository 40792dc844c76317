// Attention as matrix products and softmax; its gradient recomputes the probabilities from lse (Dao, Fu, Ermon, Rudra,
// Re: FlashAttention, NeurIPS 2022, algorithm 4, without the tiling).
#include "passes/decompose/Rewrites.h"

#include <limits>

namespace cleave::passes {
namespace {
using mlir::Value;

constexpr int64_t rowDim = 2, columnDim = 3;
// Its exp is 0. A finite number would win over visible keys whose scores are -infinity or smaller than it.
constexpr double hidden = -std::numeric_limits<double>::infinity();

/// scale * q k^T + bias in f32 [b, h, t, s], -infinity where the causal mask hides j > i + s - t. Every row has a key
/// that the causal mask does not hide.
template <typename Op> Value scores(GraphBuilder &e, Op op) {
  Value s = e.scale(e.toF32(e.matmul(op.getQ(), op.getK(), false, true)), op.getScale().convertToDouble());
  if (op.getBias())
    s = e.add(s, op.getBias());
  if (!op.getCausal())
    return s;
  Dims shape = shapeOf(s);
  Value row = e.iota(shape, rowDim), column = e.iota(shape, columnDim);
  Value reach = e.shift(row, static_cast<double>(shape[columnDim] - shape[rowDim]));
  return e.select(e.compare(ir::Predicate::Le, column, reach), s, e.constantLike(s, hidden));
}

Value spread(GraphBuilder &e, Value rows, Value like) { return e.broadcastBack(rows, shapeOf(like), {columnDim}); }

/// Elements of the softmax, or their gradients, after dropout.
template <typename Op> Value dropped(GraphBuilder &e, Op op, Value x) {
  if (!op.getKeep())
    return x;
  return e.select(op.getKeep(), e.scale(x, 1 / (1 - op.getDropout().convertToDouble())), e.constantLike(x, 0));
}

/// The softmax, and the gradient of its logarithm's numerator: that of scale * q k^T + bias.
struct Gradients {
  Value p, scores;
};
template <typename Op> Gradients gradients(GraphBuilder &e, Op op, Value grad, Value out, Value lse) {
  Value s = scores(e, op);
  Value p = e.exp(e.sub(s, spread(e, e.toF32(lse), s)));
  Value gradP = dropped(e, op, e.toF32(e.matmul(grad, op.getV(), false, true)));
  Value rows = e.sum(e.mul(e.toF32(grad), e.toF32(out)), {columnDim});
  return {p, e.mul(p, e.sub(gradP, spread(e, rows, s)))};
}

} // namespace

Values decomposeAttention(ir::AttentionOp op, GraphBuilder &e) {
  Value s = scores(e, op);
  Value max = e.reduce(ir::ReduceKind::Max, s, {columnDim});
  if (op.getBias()) // which may hide all keys
    max = e.select(e.compare(ir::Predicate::Eq, max, hidden), e.constantLike(max, 0), max);
  Value exponential = e.exp(e.sub(s, spread(e, max, s)));
  Value sum = e.sum(exponential, {columnDim}), one = e.constantLike(sum, 1);
  Value inverse = e.div(one, sum); // one division a row, not one an element
  Value lse = e.add(max, e.log(sum));
  if (op.getBias()) {
    Value none = e.compare(ir::Predicate::Eq, sum, 0);
    inverse = e.select(none, e.constantLike(sum, 0), inverse);
    lse = e.select(none, e.constantLike(sum, -hidden), lse);
  }
  Value p = dropped(e, op, e.mul(exponential, spread(e, inverse, s)));
  return {e.matmul(e.castLike(p, op.getV()), op.getV(), false, false), e.castLike(lse, op.getLse())};
}

Values decomposeAttentionGrad(ir::AttentionGradOp op, GraphBuilder &e) {
  const auto [p, gradScores] = gradients(e, op, op.getGrad(), op.getOut(), op.getLse());
  Value gradV = e.matmul(e.castLike(dropped(e, op, p), op.getV()), op.getGrad(), true, false);
  Value gradS = e.castLike(e.scale(gradScores, op.getScale().convertToDouble()), op.getQ());
  return {e.matmul(gradS, op.getK(), false, false), e.matmul(gradS, op.getQ(), true, false), gradV};
}

Value attentionBiasGrad(ir::AttentionOp op, Value grad, GraphBuilder &e) {
  return gradients(e, op, grad, op.getResult(), op.getLse()).scores;
}

} // namespace cleave::passes
