// Gradient rules of matrix products, convolutions, pooling and attention.
#include "passes/decompose/Rewrites.h"
#include "passes/differentiate/Rules.h"

namespace cleave::passes {
namespace {
using mlir::Value;

/// For c = op(a) op(b) with equal ranks and c's gradient gc: the gradient of a.
Value gradientOfA(GraphBuilder &e, Value gc, Value b, bool transA, bool transB) {
  return transA ? e.matmul(b, gc, transB, true) : e.matmul(gc, b, false, !transB);
}
/// The gradient of b.
Value gradientOfB(GraphBuilder &e, Value gc, Value a, bool transA, bool transB) {
  return transB ? e.matmul(gc, a, true, transA) : e.matmul(a, gc, !transA, false);
}

/// Merges all leading dimensions.
Value flattenRows(GraphBuilder &e, Value x) {
  Dims shape = shapeOf(x);
  return e.reshape(x, {product(shape.drop_back()), shape.back()});
}

/// If b has rank 2, the rows of all of a's matrices are merged, so b's gradient is one matrix product.
void matmulRule(ir::MatmulOp op, Grads g, Adjoints &adjoints) {
  GraphBuilder &e = adjoints.e;
  Value a = op.getA(), b = op.getB();
  bool shared = rankOf(a) != rankOf(b), transA = op.getTransA(), transB = op.getTransB();
  adjoints.contribute(a, [&] { return gradientOfA(e, g[0], b, transA, transB); });
  adjoints.contribute(b, [&] {
    if (shared)
      return gradientOfB(e, flattenRows(e, g[0]), flattenRows(e, a), false, transB);
    return gradientOfB(e, g[0], a, transA, transB);
  });
}

void conv2dRule(ir::Conv2dOp op, Grads g, Adjoints &a) {
  auto gradient = [&]<class Op>(Value of, Value other) {
    return a.e
        .op<Op>(of.getType(), g[0], other, op.getStrideAttr(), op.getPaddingAttr(), op.getDilationAttr(),
                op.getGroupsAttr(), op.getChannelsLastAttr())
        .getResult();
  };
  Value x = op.getInput(), w = op.getWeight();
  a.contribute(x, [&] { return gradient.operator()<ir::Conv2dInputGradOp>(x, w); });
  a.contribute(w, [&] { return gradient.operator()<ir::Conv2dWeightGradOp>(w, x); });
}

/// The transposed convolution is linear in x; its adjoint is the convolution.
void conv2dInputGradRule(ir::Conv2dInputGradOp op, Grads g, Adjoints &a) {
  Value x = op.getGrad(), w = op.getWeight();
  a.contribute(x, [&] {
    return a.e
        .op<ir::Conv2dOp>(x.getType(), g[0], w, op.getStrideAttr(), op.getPaddingAttr(), op.getDilationAttr(),
                          op.getGroupsAttr(), op.getChannelsLastAttr())
        .getResult();
  });
  a.contribute(w, [&] {
    return a.e
        .op<ir::Conv2dWeightGradOp>(w.getType(), x, g[0], op.getStrideAttr(), op.getPaddingAttr(), op.getDilationAttr(),
                                    op.getGroupsAttr(), op.getChannelsLastAttr())
        .getResult();
  });
}

void maxPoolRule(ir::MaxPool2dOp op, Grads g, Adjoints &a) {
  a.add(op.getInput(), a.e.op<ir::MaxPool2dGradOp>(op.getInput().getType(), g[0], op.getWorkspace(), op.getKernelAttr(),
                                                   op.getStrideAttr(), op.getPaddingAttr(), op.getChannelsLastAttr()));
}

void avgPoolRule(ir::AvgPool2dOp op, Grads g, Adjoints &a) {
  a.add(op.getInput(), a.e.op<ir::AvgPool2dGradOp>(op.getInput().getType(), g[0], op.getKernelAttr(),
                                                   op.getStrideAttr(), op.getPaddingAttr(), op.getChannelsLastAttr()));
}

void attentionRule(ir::AttentionOp op, Grads g, Adjoints &a) {
  Value q = op.getQ(), k = op.getK(), v = op.getV();
  auto grad = a.e.op<ir::AttentionGradOp>(g[0], q, k, v, op.getResult(), op.getLse(), op.getBias(), op.getKeep(),
                                          op.getScaleAttr(), op.getCausalAttr(), op.getDropoutAttr());
  a.contribute(q, [&] { return grad.getGradQ(); });
  a.contribute(k, [&] { return grad.getGradK(); });
  a.contribute(v, [&] { return grad.getGradV(); });
  if (op.getBias())
    a.contribute(op.getBias(), [&] { return attentionBiasGrad(op, g[0], a.e); });
}

} // namespace

void addLinearAlgebraRules(RuleTable &table) {
  table.on(matmulRule), table.on(conv2dRule), table.on(conv2dInputGradRule), table.on(maxPoolRule);
  table.on(avgPoolRule), table.on(attentionRule);
}

} // namespace cleave::passes
