// Attention as matrix products and softmax; its gradient recomputes the probabilities from lse (Dao, Fu, Ermon, Rudra,
// Re: FlashAttention, NeurIPS 2022, algorithm 4, without the tiling).
#include "passes/decompose/Rewrites.h"

#include <limits>

namespace cleave::passes {
namespace {
using mlir::Value;

constexpr int64_t rowDim = 2, columnDim = 3;
// Its exp is 0. A finite number would win over visible keys whose scores are -infinity or smaller than it.
constexpr double masked = -std::numeric_limits<double>::infinity();

/// scale * q k^T in f32 [b, h, t, s], -infinity where the causal mask hides j > i + s - t. Every row has a visible key.
Value scores(GraphBuilder &e, Value q, Value k, double scale, bool causal) {
  Value s = e.scale(e.toF32(e.matmul(q, k, false, true)), scale);
  if (!causal)
    return s;
  Dims shape = shapeOf(s);
  Value row = e.iota(shape, rowDim), column = e.iota(shape, columnDim);
  Value reach = e.shift(row, static_cast<double>(shape[columnDim] - shape[rowDim]));
  return e.select(e.compare(ir::Predicate::Le, column, reach), s, e.constantLike(s, masked));
}

Value spread(GraphBuilder &e, Value rows, Value like) { return e.broadcastBack(rows, shapeOf(like), {columnDim}); }

} // namespace

Values decomposeAttention(ir::AttentionOp op, GraphBuilder &e) {
  Value s = scores(e, op.getQ(), op.getK(), op.getScale().convertToDouble(), op.getCausal());
  Value max = e.reduce(ir::ReduceKind::Max, s, {columnDim});
  Value exponential = e.exp(e.sub(s, spread(e, max, s)));
  Value sum = e.sum(exponential, {columnDim});
  Value inverse = e.div(e.constantLike(sum, 1), sum); // one division a row, not one an element
  Value p = e.cast(e.mul(exponential, spread(e, inverse, s)), tensorType(op.getV()).getElementType());
  Value result = e.matmul(p, op.getV(), false, false), lse = e.add(max, e.log(sum));
  return {result, e.castLike(lse, op.getLse())};
}

Values decomposeAttentionGrad(ir::AttentionGradOp op, GraphBuilder &e) {
  double scale = op.getScale().convertToDouble();
  mlir::Type element = tensorType(op.getQ()).getElementType();
  Value s = scores(e, op.getQ(), op.getK(), scale, op.getCausal());
  Value p = e.exp(e.sub(s, spread(e, e.toF32(op.getLse()), s)));
  Value gradV = e.matmul(e.cast(p, element), op.getGrad(), true, false);
  Value gradP = e.toF32(e.matmul(op.getGrad(), op.getV(), false, true));
  Value rows = e.sum(e.mul(e.toF32(op.getGrad()), e.toF32(op.getOut())), {columnDim});
  Value gradS = e.cast(e.scale(e.mul(p, e.sub(gradP, spread(e, rows, s))), scale), element);
  return {e.matmul(gradS, op.getK(), false, false), e.matmul(gradS, op.getQ(), true, false), gradV};
}

} // namespace cleave::passes
