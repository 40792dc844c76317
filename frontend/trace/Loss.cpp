// Losses: sums, weights and, for classification, how many were right.
#include "cleave/Loss.h"
#include "frontend/trace/Diagnose.h"
#include "frontend/trace/Trace.h"

namespace cleave {

using namespace ir;

Loss crossEntropy(Tensor logits, Tensor labels, Where where) {
  Trace &trace = Trace::current("crossEntropy", where);
  const Facts facts = {fact(logits, "logits"), fact(labels, "labels")};
  Shape rows = logits.shape();
  if (!rows.empty())
    rows.pop_back();
  if (logits.rank() < 1 || labels.shape() != rows)
    failRule("crossEntropy", 1, "the labels' shape must be the logits' without the last dimension", facts, where);
  if (labels.dtype() != DType::I32)
    failRule("crossEntropy", 2, "labels must be i32", facts, where);
  auto op = trace.make<CrossEntropyOp>(where, valueOf(logits), valueOf(labels));
  mlir::Value correct = trace.make<TopOneCorrectOp>(where, valueOf(logits), valueOf(labels));
  return {tensorOf(op.getLoss()), tensorOf(op.getWeight()), tensorOf(correct), labels.elements()};
}

Loss mseLoss(Tensor prediction, Tensor target, Where where) {
  Trace &trace = Trace::current("mseLoss", where);
  if (prediction.shape() != target.shape() || prediction.dtype() != target.dtype())
    failRule("mseLoss", 1, "prediction and target must have the same shape and element type",
             {fact(prediction, "prediction"), fact(target, "target")}, where);
  mlir::RankedTensorType type = typeOf(target);
  mlir::Value zero = trace.splat(where, type, 0), one = trace.splat(where, type, 1);
  mlir::Value counts = trace.make<CompareOp>(where, Predicate::Eq, valueOf(target), valueOf(target));
  mlir::Value goal = trace.make<SelectOp>(where, type, counts, valueOf(target), valueOf(prediction));
  Tensor error = Operand(prediction, where) - tensorOf(goal);
  Tensor weights = tensorOf(trace.make<SelectOp>(where, type, counts, one, zero).getResult());
  return {sum(Operand(error, where) * error, {}, false, where), sum(weights, {}, false, where), {}, target.elements()};
}

} // namespace cleave
