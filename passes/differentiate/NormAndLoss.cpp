// Gradient rules of softmax, normalisations and losses.
#include "passes/differentiate/Rules.h"

namespace cleave::passes {
namespace {
using mlir::Value;

/// Sum along `dim`, repeated to x's shape.
Value sumAlong(GraphBuilder &e, Value x, int64_t dim) { return e.broadcastBack(e.sum(x, {dim}), shapeOf(x), {dim}); }

/// y (g - sum(g y))
void softmaxRule(ir::SoftmaxOp op, Grads g, Adjoints &a) {
  Value y = a.e.toF32(op.getResult()), grad = a.e.toF32(g[0]);
  a.addRounded(op.getInput(), a.e.mul(y, a.e.sub(grad, sumAlong(a.e, a.e.mul(grad, y), op.getDim()))));
}

/// g - exp(y) sum(g)
void logSoftmaxRule(ir::LogSoftmaxOp op, Grads g, Adjoints &a) {
  Value grad = a.e.toF32(g[0]);
  Value weighted = a.e.mul(a.e.exp(a.e.toF32(op.getResult())), sumAlong(a.e, grad, op.getDim()));
  a.addRounded(op.getInput(), a.e.sub(grad, weighted));
}

template <class GradOp> void contributeAll(GradOp grad, Value input, Value weight, Value bias, Adjoints &a) {
  a.contribute(input, [&] { return grad.getGradInput(); });
  a.contribute(weight, [&] { return grad.getGradWeight(); });
  a.contribute(bias, [&] { return grad.getGradBias(); });
}

void layerNormRule(ir::LayerNormOp op, Grads g, Adjoints &a) {
  auto grad = a.e.op<ir::LayerNormGradOp>(g[0], op.getInput(), op.getWeight(), op.getMean(), op.getRstd());
  contributeAll(grad, op.getInput(), op.getWeight(), op.getBias(), a);
}

void batchNormRule(ir::BatchNormOp op, Grads g, Adjoints &a) {
  auto grad = a.e.op<ir::BatchNormGradOp>(g[0], op.getInput(), op.getWeight(), op.getMean(), op.getVariance(),
                                          op.getEpsAttr(), op.getGroupAttr(), op.getChannelsLastAttr());
  contributeAll(grad, op.getInput(), op.getWeight(), op.getBias(), a);
}

void crossEntropyRule(ir::CrossEntropyOp op, Grads g, Adjoints &a) {
  Value x = op.getLogits();
  a.add(x, a.e.op<ir::CrossEntropyGradOp>(x.getType(), g[0], x, op.getLabels(), op.getLse()).getResult());
}

} // namespace

void addNormAndLossRules(RuleTable &table) {
  table.on(softmaxRule), table.on(logSoftmaxRule), table.on(layerNormRule), table.on(batchNormRule);
  table.on(crossEntropyRule);
  table.stop<ir::TopCorrectOp>();
}

const RuleTable &gradientRules() {
  static const RuleTable table = [] {
    RuleTable rules;
    addElementwiseRules(rules), addShapeRules(rules), addLinearAlgebraRules(rules), addNormAndLossRules(rules);
    return rules;
  }();
  return table;
}

} // namespace cleave::passes
