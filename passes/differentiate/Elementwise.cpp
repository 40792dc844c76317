// Gradient rules of elementwise ops. They use the op's result instead of its operand if possible, because the result is
// more often stored anyway. Formulas of several steps are computed in f32 and rounded once.
#include "passes/differentiate/Rules.h"

#include <cmath>

namespace cleave::passes {
namespace {
using mlir::Value;
using Predicate = ir::Predicate;

/// grad if the condition holds, otherwise zero.
Value masked(GraphBuilder &e, Value condition, Value grad) {
  return e.select(condition, grad, e.constantLike(grad, 0));
}
/// Zero if the condition holds, otherwise (also if an operand of the condition is NaN) grad.
Value maskedOut(GraphBuilder &e, Value condition, Value grad) {
  return e.select(condition, e.constantLike(grad, 0), grad);
}

void negRule(ir::NegOp op, Grads g, Adjoints &a) { a.add(op.getInput(), a.e.neg(g[0])); }

void absRule(ir::AbsOp op, Grads g, Adjoints &a) {
  Value x = op.getInput(), positive = masked(a.e, a.e.compare(Predicate::Gt, x, 0), g[0]);
  a.add(x, a.e.select(a.e.compare(Predicate::Lt, x, 0), a.e.neg(g[0]), positive));
}

void expRule(ir::ExpOp op, Grads g, Adjoints &a) { a.add(op.getInput(), a.e.mul(g[0], op.getResult())); }
void logRule(ir::LogOp op, Grads g, Adjoints &a) { a.add(op.getInput(), a.e.div(g[0], op.getInput())); }
void sqrtRule(ir::SqrtOp op, Grads g, Adjoints &a) {
  a.add(op.getInput(), a.e.div(a.e.scale(g[0], 0.5), op.getResult()));
}
void rsqrtRule(ir::RsqrtOp op, Grads g, Adjoints &a) {
  Value y = a.e.toF32(op.getResult()), scaled = a.e.scale(a.e.toF32(g[0]), -0.5);
  a.addRounded(op.getInput(), a.e.mul(scaled, a.e.mul(y, a.e.mul(y, y))));
}

void tanhRule(ir::TanhOp op, Grads g, Adjoints &a) {
  Value y = a.e.toF32(op.getResult());
  a.addRounded(op.getInput(), a.e.mul(a.e.toF32(g[0]), a.e.sub(a.e.constantLike(y, 1), a.e.mul(y, y))));
}

void erfRule(ir::ErfOp op, Grads g, Adjoints &a) {
  Value x = a.e.toF32(op.getInput());
  Value slope = a.e.scale(a.e.exp(a.e.neg(a.e.mul(x, x))), 2 / std::sqrt(3.14159265358979323846));
  a.addRounded(op.getInput(), a.e.mul(a.e.toF32(g[0]), slope));
}

void sinRule(ir::SinOp op, Grads g, Adjoints &a) { a.add(op.getInput(), a.e.mul(g[0], a.e.cos(op.getInput()))); }
void cosRule(ir::CosOp op, Grads g, Adjoints &a) {
  a.add(op.getInput(), a.e.neg(a.e.mul(g[0], a.e.sin(op.getInput()))));
}

void tanRule(ir::TanOp op, Grads g, Adjoints &a) {
  Value y = a.e.toF32(op.getResult());
  a.addRounded(op.getInput(), a.e.mul(a.e.toF32(g[0]), a.e.shift(a.e.mul(y, y), 1)));
}
void sinhRule(ir::SinhOp op, Grads g, Adjoints &a) {
  Value x = a.e.toF32(op.getInput()), twice = a.e.add(a.e.exp(x), a.e.exp(a.e.neg(x)));
  a.addRounded(op.getInput(), a.e.mul(a.e.toF32(g[0]), a.e.scale(twice, 0.5)));
}
void log1pRule(ir::Log1pOp op, Grads g, Adjoints &a) {
  a.addRounded(op.getInput(), a.e.div(a.e.toF32(g[0]), a.e.shift(a.e.toF32(op.getInput()), 1)));
}
void expm1Rule(ir::Expm1Op op, Grads g, Adjoints &a) {
  a.addRounded(op.getInput(), a.e.mul(a.e.toF32(g[0]), a.e.shift(a.e.toF32(op.getResult()), 1)));
}

void sigmoidRule(ir::SigmoidOp op, Grads g, Adjoints &a) {
  Value y = a.e.toF32(op.getResult());
  a.addRounded(op.getInput(), a.e.mul(a.e.toF32(g[0]), a.e.mul(y, a.e.sub(a.e.constantLike(y, 1), y))));
}

void reluRule(ir::ReluOp op, Grads g, Adjoints &a) {
  a.add(op.getInput(), maskedOut(a.e, a.e.compare(Predicate::Le, op.getResult(), 0), g[0]));
}

/// silu' = s (1 + x (1 - s)), s = sigmoid(x)
void siluRule(ir::SiluOp op, Grads g, Adjoints &a) {
  GraphBuilder &e = a.e;
  Value x = e.toF32(op.getInput()), s = e.sigmoid(x), one = e.constantLike(x, 1);
  Value slope = e.mul(s, e.add(one, e.mul(x, e.sub(one, s))));
  a.addRounded(op.getInput(), e.mul(e.toF32(g[0]), slope));
}

void geluRule(ir::GeluOp op, Grads g, Adjoints &a) {
  a.add(op.getInput(), a.e.op<ir::GeluGradOp>(g[0].getType(), g[0], op.getInput(), op.getTanh()));
}

void addRule(ir::AddOp op, Grads g, Adjoints &a) {
  a.contribute(op.getLhs(), [&] { return g[0]; });
  a.contribute(op.getRhs(), [&] { return g[0]; });
}
void subRule(ir::SubOp op, Grads g, Adjoints &a) {
  a.contribute(op.getLhs(), [&] { return g[0]; });
  a.contribute(op.getRhs(), [&] { return a.e.neg(g[0]); });
}
void mulRule(ir::MulOp op, Grads g, Adjoints &a) {
  a.contribute(op.getLhs(), [&] { return a.e.mul(g[0], op.getRhs()); });
  a.contribute(op.getRhs(), [&] { return a.e.mul(g[0], op.getLhs()); });
}
void divRule(ir::DivOp op, Grads g, Adjoints &a) {
  Value overRhs = a.e.div(a.e.toF32(g[0]), a.e.toF32(op.getRhs()));
  if (a.needs(op.getLhs()))
    a.addRounded(op.getLhs(), overRhs);
  if (a.needs(op.getRhs()))
    a.addRounded(op.getRhs(), a.e.neg(a.e.mul(overRhs, a.e.toF32(op.getResult()))));
}

/// The selected operand receives the gradient; if both are equal, each receives half; if one is NaN, each receives all.
void chooseRule(Predicate loses, Value x, Value y, Value g, Adjoints &a) {
  GraphBuilder &e = a.e;
  Value shared = e.select(e.compare(Predicate::Eq, x, y), e.scale(g, 0.5), g);
  a.contribute(x, [&] { return maskedOut(e, e.compare(loses, x, y), shared); });
  a.contribute(y, [&] { return maskedOut(e, e.compare(loses, y, x), shared); });
}
void maxRule(ir::MaxOp op, Grads g, Adjoints &a) { chooseRule(Predicate::Lt, op.getLhs(), op.getRhs(), g[0], a); }
void minRule(ir::MinOp op, Grads g, Adjoints &a) { chooseRule(Predicate::Gt, op.getLhs(), op.getRhs(), g[0], a); }

/// d x^y = y x^(y-1) dx (0 where y = 0) + x^y log(x) dy (0 where x = 0 and y >= 0)
void powRule(ir::PowOp op, Grads g, Adjoints &a) {
  GraphBuilder &e = a.e;
  Value x = e.toF32(op.getLhs()), y = e.toF32(op.getRhs()), grad = e.toF32(g[0]);
  if (a.needs(op.getLhs())) {
    Value slope = e.mul(y, e.pow(x, e.shift(y, -1)));
    a.addRounded(op.getLhs(), masked(e, e.compare(Predicate::Ne, y, 0), e.mul(grad, slope)));
  }
  if (a.needs(op.getRhs())) {
    Value slope = e.mul(e.toF32(op.getResult()), e.log(x));
    Value flat = e.min(e.compare(Predicate::Eq, x, 0), e.compare(Predicate::Ge, y, 0));
    a.addRounded(op.getRhs(), maskedOut(e, flat, e.mul(grad, slope)));
  }
}

/// d (x - y n) = dx - n dy, where n = floor(x / y)
void remainderRule(ir::RemainderOp op, Grads g, Adjoints &a) {
  GraphBuilder &e = a.e;
  a.contribute(op.getLhs(), [&] { return g[0]; });
  if (a.needs(op.getRhs())) {
    Value x = e.toF32(op.getLhs()), y = e.toF32(op.getRhs()), zero = e.compare(Predicate::Eq, y, 0);
    Value n = e.round(e.div(e.sub(x, e.toF32(op.getResult())), y));
    n = e.select(zero, e.div(x, y), n);
    a.addRounded(op.getRhs(), e.neg(e.mul(e.toF32(g[0]), n)));
  }
}

/// d atan2(y, x) = (x dy - y dx) / (x^2 + y^2)
void atan2Rule(ir::Atan2Op op, Grads g, Adjoints &a) {
  GraphBuilder &e = a.e;
  Value y = e.toF32(op.getLhs()), x = e.toF32(op.getRhs()), grad = e.toF32(g[0]);
  Value square = e.add(e.mul(x, x), e.mul(y, y)), one = e.constantLike(square, 1);
  Value inverse = maskedOut(e, e.compare(Predicate::Eq, square, 0), e.div(one, square)); // as in PyTorch
  if (a.needs(op.getLhs()))
    a.addRounded(op.getLhs(), e.mul(e.mul(grad, x), inverse));
  if (a.needs(op.getRhs()))
    a.addRounded(op.getRhs(), e.neg(e.mul(e.mul(grad, y), inverse)));
}

void selectRule(ir::SelectOp op, Grads g, Adjoints &a) {
  Value zero = a.e.constantLike(g[0], 0);
  a.contribute(op.getOnTrue(), [&] { return a.e.select(op.getCondition(), g[0], zero); });
  a.contribute(op.getOnFalse(), [&] { return a.e.select(op.getCondition(), zero, g[0]); });
}

void castRule(ir::CastOp op, Grads g, Adjoints &a) { a.add(op.getInput(), a.e.castLike(g[0], op.getInput())); }

void shardHintRule(ir::ShardHintOp op, Grads g, Adjoints &a) { a.add(op.getInput(), g[0]); }

} // namespace

void addElementwiseRules(RuleTable &table) {
  table.on(negRule), table.on(absRule), table.on(expRule), table.on(logRule), table.on(sqrtRule), table.on(rsqrtRule);
  table.on(tanhRule), table.on(erfRule), table.on(sinRule), table.on(cosRule), table.on(sigmoidRule);
  table.on(tanRule), table.on(sinhRule), table.on(log1pRule), table.on(expm1Rule);
  table.on(reluRule), table.on(siluRule), table.on(geluRule);
  table.on(addRule), table.on(subRule), table.on(mulRule), table.on(divRule);
  table.on(maxRule), table.on(minRule), table.on(powRule), table.on(remainderRule), table.on(atan2Rule);
  table.on(selectRule), table.on(castRule), table.on(shardHintRule);
  table.stop<ir::FloorOp>(), table.stop<ir::CeilOp>(), table.stop<ir::RoundOp>();
  table.stop<ir::CompareOp>(), table.stop<ir::IotaOp>(), table.stop<ir::ConstantOp>();
  table.stop<ir::RandomUniformOp>(), table.stop<ir::DetachOp>();
}

} // namespace cleave::passes
