// Layer and batch normalisation and their gradients. With xhat = (x - mean) * rstd and gw = grad * weight:
//   grad x = rstd * (gw - mean(gw) - xhat * mean(gw * xhat)),  grad weight = sum(grad * xhat),  grad bias = sum(grad).
#include "passes/decompose/Rewrites.h"

namespace cleave::passes {
namespace {
using mlir::Value;

/// sum / count. Multiplying by a rounded 1 / count would be inexact: for equal elements x - mean, which is multiplied
/// by up to 1 / sqrt(eps), would not be 0, and the gradients assume exact means.
Value average(GraphBuilder &e, Value sum, double count) { return e.div(sum, e.constantLike(sum, count)); }

struct Moments {
  Value centred;        // x - mean
  Value mean, variance; // without `dims`
};

/// Mean and biased variance over `dims`, in two passes.
Moments moments(GraphBuilder &e, Value x, Dims dims) {
  double count = 1;
  for (int64_t dim : dims)
    count *= shapeOf(x)[dim];
  Value mean = average(e, e.sum(x, dims), count);
  Value centred = e.sub(x, e.broadcastBack(mean, shapeOf(x), dims));
  return {centred, mean, average(e, e.sum(e.mul(centred, centred), dims), count)};
}

/// The shape used by batch normalisation: the tensor's, or with n as [n/group, group] for statistics per group.
struct BatchView {
  llvm::SmallVector<int64_t> shape;
  llvm::SmallVector<int64_t> reduced; // dimensions removed by the statistics
  llvm::SmallVector<int64_t> groups;  // dimensions of the statistics that weight and bias do not have
  int64_t channel;                    // the dimension of weight and bias
  double count = 1;                   // number of elements per statistic

  template <typename Op> explicit BatchView(Op op) : shape(shapeOf(op.getInput())) {
    const int64_t group = op.getGroup();
    if (group > 0) {
      shape.insert(shape.begin(), shape[0] / group);
      shape[1] = group;
      groups.push_back(0);
    }
    channel = op.getChannelsLast() ? shape.size() - 1 : groups.size() + 1;
    for (int64_t i = 0, rank = shape.size(); i < rank; ++i)
      if (i != channel && !(group > 0 && i == 0)) {
        reduced.push_back(i);
        count *= shape[i];
      }
  }
  /// Broadcasts a statistic to the whole shape.
  Value spread(GraphBuilder &e, Value statistic) const { return e.broadcastBack(statistic, shape, reduced); }
  /// Broadcasts weight or bias to the whole shape.
  Value spreadChannel(GraphBuilder &e, Value vector) const { return e.broadcast(vector, shape, {channel}); }
};

} // namespace

Values decomposeLayerNorm(ir::LayerNormOp op, GraphBuilder &e) {
  Value x = e.toF32(op.getInput());
  Dims shape = shapeOf(x);
  int64_t last = shape.size() - 1;
  Moments m = moments(e, x, {last});
  Value rstd = e.rsqrt(e.shift(m.variance, op.getEps().convertToDouble()));
  Value normal = e.mul(m.centred, e.broadcastBack(rstd, shape, {last}));
  Value weight = e.broadcast(e.toF32(op.getWeight()), shape, {last});
  Value bias = e.broadcast(e.toF32(op.getBias()), shape, {last});
  Value y = e.add(e.mul(normal, weight), bias);
  return {e.castLike(y, op.getResult()), e.castLike(m.mean, op.getMean()), e.castLike(rstd, op.getRstd())};
}

Values decomposeLayerNormGrad(ir::LayerNormGradOp op, GraphBuilder &e) {
  Value x = e.toF32(op.getInput()), grad = e.toF32(op.getGrad());
  Dims shape = shapeOf(x);
  int64_t last = shape.size() - 1;
  double count = shape[last];
  auto spread = [&](Value statistic) { return e.broadcastBack(statistic, shape, {last}); };
  Value rstd = spread(e.toF32(op.getRstd()));
  Value normal = e.mul(e.sub(x, spread(e.toF32(op.getMean()))), rstd);
  Value weighted = e.mul(grad, e.broadcast(e.toF32(op.getWeight()), shape, {last}));
  Value mean = average(e, e.sum(weighted, {last}), count);
  Value slope = average(e, e.sum(e.mul(weighted, normal), {last}), count);
  Value gradInput = e.mul(rstd, e.sub(e.sub(weighted, spread(mean)), e.mul(normal, spread(slope))));
  auto leading = dimsExcept(shape.size(), {last});
  Value gradWeight = e.sum(e.mul(grad, normal), leading), gradBias = e.sum(grad, leading);
  return {e.castLike(gradInput, op.getGradInput()), e.castLike(gradWeight, op.getGradWeight()),
          e.castLike(gradBias, op.getGradBias())};
}

Values decomposeBatchNorm(ir::BatchNormOp op, GraphBuilder &e) {
  BatchView view(op);
  Value x = e.reshape(e.toF32(op.getInput()), view.shape);
  Moments m = moments(e, x, view.reduced);
  Value rstd = e.rsqrt(e.shift(m.variance, op.getEps().convertToDouble()));
  Value normal = e.mul(m.centred, view.spread(e, rstd));
  Value y = e.add(e.mul(normal, view.spreadChannel(e, e.toF32(op.getWeight()))),
                  view.spreadChannel(e, e.toF32(op.getBias())));
  y = e.reshape(y, shapeOf(op.getInput()));
  return {e.castLike(y, op.getResult()), e.castLike(m.mean, op.getMean()), e.castLike(m.variance, op.getVariance())};
}

Values decomposeBatchNormGrad(ir::BatchNormGradOp op, GraphBuilder &e) {
  BatchView view(op);
  Value x = e.reshape(e.toF32(op.getInput()), view.shape), grad = e.reshape(e.toF32(op.getGrad()), view.shape);
  Value rstd = e.rsqrt(e.shift(e.toF32(op.getVariance()), op.getEps().convertToDouble()));
  Value normal = e.mul(e.sub(x, view.spread(e, e.toF32(op.getMean()))), view.spread(e, rstd));
  // Sums per group. The weight is constant within a channel, so it is multiplied in last.
  Value sumGrad = e.sum(grad, view.reduced), sumSlope = e.sum(e.mul(grad, normal), view.reduced);
  Value mean = average(e, sumGrad, view.count), slope = average(e, sumSlope, view.count);
  Value centred = e.sub(e.sub(grad, view.spread(e, mean)), e.mul(normal, view.spread(e, slope)));
  Value weight = e.broadcastBack(e.toF32(op.getWeight()), shapeOf(rstd), view.groups);
  Value gradInput = e.reshape(e.mul(centred, view.spread(e, e.mul(rstd, weight))), shapeOf(op.getInput()));
  Value gradWeight = e.sum(sumSlope, view.groups), gradBias = e.sum(sumGrad, view.groups);
  return {e.castLike(gradInput, op.getGradInput()), e.castLike(gradWeight, op.getGradWeight()),
          e.castLike(gradBias, op.getGradBias())};
}

} // namespace cleave::passes
