// Losses: sums, weights and, for classification, the number of correct predictions.
#include "cleave/Loss.h"
#include "cleave/Functional.h"
#include "cleave/Pointwise.h"
#include "cleave/Reduce.h"
#include "frontend/trace/Compose.h"
#include "frontend/trace/Diagnose.h"
#include "frontend/trace/Indices.h"
#include "runtime/base/Error.h"

#include "mlir/IR/OperationSupport.h"
#include "llvm/ADT/DenseSet.h"

#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <numeric>
#include <set>

namespace cleave {

using namespace ir;
using mlir::Value;

/// With Reduction::Sum, the weight is the microbatch's part of the batch: the weights of a batch add up to 1.
static Loss reducedBy(Ops &ops, Reduction reduction, Loss loss) {
  if (reduction == Reduction::Mean)
    return loss;
  Value share = ops.constant(ops.trace.type({}, ops.trace.element(DType::F32)), ops.trace.batchShare);
  return {loss.sum, tensorOf(share), {}, 1};
}

/// Whether the labels are probabilities of the classes.
static bool areProbabilities(Tensor logits, Tensor labels) {
  return logits.rank() >= 1 && labels.shape() == logits.shape() && labels.dtype() == logits.dtype() && isFloat(labels);
}

// ---- losses of class labels ---------------------------------------------------------------------------------------

static void checkLabels(Ops &ops, const char *name, Tensor scores, Tensor labels, const char *role,
                        int64_t ignored = noIndex) {
  const Where where = ops.where;
  const Facts facts = {fact(scores, role), fact(labels, "labels")};
  Shape rows = scores.shape();
  if (!rows.empty())
    rows.pop_back();
  if (scores.rank() < 1 || labels.shape() != rows)
    failRule(name, 1, fmt::format("the labels' shape must be that of the {} without the last dimension", role), facts,
             where);
  if (labels.dtype() != DType::I32)
    failRule(name, 2, "labels must be i32", facts, where);
  readIndices(ops, name, valueOf(labels), IndexRange::labels(scores.size(-1), ignored));
}

Loss crossEntropy(Tensor logits, Tensor labels, Where where) {
  return crossEntropy(logits, labels, CrossEntropyOptions{}, where);
}

Tensor topCorrect(Tensor logits, Tensor labels, int64_t k, Where at) {
  Ops ops("topCorrect", at);
  checkLabels(ops, "topCorrect", logits, labels, "logits");
  if (k < 1)
    failRule("topCorrect", 3, fmt::format("k must be positive, found {}", k), {}, at);
  return tensorOf(ops.op<TopCorrectOp>(valueOf(logits), valueOf(labels), static_cast<uint64_t>(k)).getResult());
}

/// Checks the options. For a mean over labels, scales the class weights so that the smallest positive weight is 1: the
/// total weight of a batch is then 0 or at least 1, and the optimizer divides by no less than 1.
static std::vector<float> weightsOf(const char *name, Tensor scores, const CrossEntropyOptions &o, Where where,
                                    bool probabilities = false) {
  if (!(o.labelSmoothing >= 0 && o.labelSmoothing < 1))
    failRule(name, 3, fmt::format("label smoothing must lie in [0, 1), found {}", o.labelSmoothing), {}, where);
  if (o.classWeights.empty())
    return {};
  float smallest = 0;
  bool good = static_cast<int64_t>(o.classWeights.size()) == scores.size(-1);
  for (float weight : o.classWeights) {
    good &= weight >= 0 && weight < INFINITY;
    if (weight > 0 && (smallest == 0 || weight < smallest))
      smallest = weight;
  }
  if (!good || smallest == 0)
    failRule(name, 4,
             fmt::format("class weights must be as many as classes ({}), not negative, and not all 0; found [{}]",
                         scores.size(-1), fmt::join(o.classWeights, ", ")),
             {}, where);
  if (probabilities || o.reduction == Reduction::Sum)
    return o.classWeights;
  std::vector<float> scaled = o.classWeights;
  for (float &weight : scaled)
    weight /= smallest;
  return scaled;
}

/// Replaces ignored labels by -1.
static Value withoutIgnored(Ops &ops, Value labels, const CrossEntropyOptions &o) {
  if (o.ignoreIndex < 0)
    return labels;
  Value ignored = ops.compare(Predicate::Eq, labels, static_cast<double>(o.ignoreIndex));
  return ops.select(ignored, ops.constantLike(labels, -1), labels);
}

/// Sums over the rows that count, with smoothing s: the loss (1 - s) weight[label] (-log p[label]) + s mean over
/// classes of weight (-log p), and the weight weight[label].
static Loss ofLogProbabilities(Ops &ops, Value logs, Value labels, Value correct, const std::vector<float> &weights,
                               double smoothing) {
  const Shape shape = Ops::shape(logs);
  const int64_t last = static_cast<int64_t>(shape.size()) - 1;
  Value zero = ops.constantLike(logs, 0), one = ops.constantLike(logs, 1);
  Value hit = ops.compare(Predicate::Eq, ops.broadcastBack(labels, shape, {last}), ops.iota(shape, last));
  Value weight = weights.empty() ? one : ops.along(ops.constant({shape[last]}, weights), shape, last);
  Value picked = ops.select(hit, ops.mul(weight, logs), zero);
  if (smoothing > 0) {
    Value counts = ops.broadcastBack(ops.compare(Predicate::Ge, labels, 0), shape, {last});
    Value all = ops.select(counts, ops.mul(weight, logs), zero);
    picked = ops.add(ops.scale(picked, 1 - smoothing), ops.scale(all, smoothing / static_cast<double>(shape[last])));
  }
  std::vector<int64_t> dims(shape.size());
  std::iota(dims.begin(), dims.end(), 0);
  Value sum = ops.neg(ops.sum(picked, dims)), total = ops.sum(ops.select(hit, weight, zero), dims);
  // Accuracy is correct / weight, so it is meaningless if rows have different weights.
  return {tensorOf(sum), tensorOf(total), weights.empty() ? tensorOf(correct) : Tensor(),
          Ops::type(labels).getNumElements()};
}

/// Sum over the rows without NaN of -sum of weight * target * log p, where smoothing s makes the target (1 - s) target
/// + s / classes.
static Loss ofProbabilities(Ops &ops, Value logs, Value target, const std::vector<float> &weights, double smoothing) {
  const Shape shape = Ops::shape(logs);
  const int64_t last = static_cast<int64_t>(shape.size()) - 1;
  Value zero = ops.constantLike(logs, 0);
  Value known = ops.toF32(ops.compare(Predicate::Eq, target, target));
  Value rows = ops.reduce(ReduceKind::Min, known, {last}); // 1 for a row that counts, otherwise 0
  Value counts = ops.compare(Predicate::Gt, ops.broadcastBack(rows, shape, {last}), 0);
  if (smoothing > 0)
    target = ops.shift(ops.scale(target, 1 - smoothing), smoothing / static_cast<double>(shape[last]));
  Value losses = ops.mul(ops.select(counts, target, zero), ops.select(counts, logs, zero));
  if (!weights.empty())
    losses = ops.mul(losses, ops.castLike(ops.along(ops.constant({shape[last]}, weights), shape, last), losses));
  std::vector<int64_t> dims(shape.size()), outer(shape.size() - 1);
  std::iota(dims.begin(), dims.end(), 0);
  std::iota(outer.begin(), outer.end(), 0);
  Value weight = outer.empty() ? rows : ops.sum(rows, outer);
  return {
      tensorOf(ops.neg(ops.sum(losses, dims))), tensorOf(weight), {}, Ops::type(logs).getNumElements() / shape[last]};
}

Loss crossEntropy(Tensor logits, Tensor labels, CrossEntropyOptions o, Where where) {
  constexpr const char *name = "crossEntropy";
  Ops ops(name, where);
  if (areProbabilities(logits, labels)) {
    const std::vector<float> weights = weightsOf(name, logits, o, where, true);
    Value logs = valueOf(logSoftmax(logits, -1, where));
    return reducedBy(ops, o.reduction, ofProbabilities(ops, logs, valueOf(labels), weights, o.labelSmoothing));
  }
  checkLabels(ops, name, logits, labels, "logits", o.ignoreIndex);
  const std::vector<float> weights = weightsOf(name, logits, o, where);
  Value known = withoutIgnored(ops, valueOf(labels), o);
  if (weights.empty() && o.labelSmoothing == 0) {
    auto op = ops.op<CrossEntropyOp>(valueOf(logits), known);
    Value right = ops.op<TopCorrectOp>(valueOf(logits), known);
    return reducedBy(ops, o.reduction,
                     {tensorOf(op.getLoss()), tensorOf(op.getWeight()), tensorOf(right), labels.elements()});
  }
  Value correct = ops.op<TopCorrectOp>(valueOf(logits), known);
  return reducedBy(
      ops, o.reduction,
      ofLogProbabilities(ops, valueOf(logSoftmax(logits, -1, where)), known, correct, weights, o.labelSmoothing));
}

Loss nllLoss(Tensor logs, Tensor labels, CrossEntropyOptions o, Where where) {
  constexpr const char *name = "nllLoss";
  Ops ops(name, where);
  checkLabels(ops, name, logs, labels, "log-probabilities", o.ignoreIndex);
  if (o.labelSmoothing != 0)
    failRule(name, 3, "label smoothing is only available in crossEntropy", {}, where);
  const std::vector<float> weights = weightsOf(name, logs, o, where);
  Value known = withoutIgnored(ops, valueOf(labels), o);
  Value correct = ops.op<TopCorrectOp>(valueOf(logs), known);
  return reducedBy(ops, o.reduction, ofLogProbabilities(ops, valueOf(logs), known, correct, weights, 0));
}

Loss nllLoss(Tensor logs, Tensor labels, Where where) { return nllLoss(logs, labels, CrossEntropyOptions{}, where); }

// ---- losses of numeric targets ------------------------------------------------------------------------------------

/// Prediction, target with NaN replaced by 0, and a mask of the elements whose target is not NaN.
struct Pairs {
  Value prediction, target, counts;
};

static Pairs pairs(Ops &ops, const char *name, Tensor prediction, Tensor target) {
  if (prediction.shape() != target.shape() || prediction.dtype() != target.dtype() || !isFloat(target))
    failRule(name, 1, "prediction and target must have the same shape and one float type",
             {fact(prediction, "prediction"), fact(target, "target")}, ops.where);
  Value t = valueOf(target), counts = ops.compare(Predicate::Eq, t, t);
  return {valueOf(prediction), ops.select(counts, t, ops.constantLike(t, 0)), counts};
}

/// The sum of `losses` over the elements that count, and their number.
static Loss summed(Ops &ops, Value counts, Value losses) {
  std::vector<int64_t> dims(Ops::shape(losses).size());
  std::iota(dims.begin(), dims.end(), 0);
  Value zero = ops.constantLike(losses, 0);
  Value sum = ops.sum(ops.select(counts, losses, zero), dims);
  Value weight = ops.sum(ops.select(counts, ops.constantLike(losses, 1), zero), dims);
  return {tensorOf(sum), tensorOf(weight), {}, Ops::type(losses).getNumElements()};
}

Loss mseLoss(Tensor prediction, Tensor target, Reduction reduction, Where where) {
  Ops ops("mseLoss", where);
  return reducedBy(ops, reduction, mseLoss(prediction, target, where));
}

Loss mseLoss(Tensor prediction, Tensor target, Where where) {
  Ops ops("mseLoss", where);
  if (prediction.shape() != target.shape() || prediction.dtype() != target.dtype())
    failRule("mseLoss", 1, "prediction and target must have the same shape and element type",
             {fact(prediction, "prediction"), fact(target, "target")}, where);
  mlir::RankedTensorType type = typeOf(target);
  mlir::Value zero = ops.constant(type, 0), one = ops.constant(type, 1);
  mlir::Value counts = ops.op<CompareOp>(Predicate::Eq, valueOf(target), valueOf(target));
  mlir::Value goal = ops.op<SelectOp>(type, counts, valueOf(target), valueOf(prediction));
  Tensor error = Operand(prediction, where) - tensorOf(goal);
  Tensor weights = tensorOf(ops.op<SelectOp>(type, counts, one, zero).getResult());
  return {sum(Operand(error, where) * error, {}, false, where), sum(weights, {}, false, where), {}, target.elements()};
}

Loss l1Loss(Tensor prediction, Tensor target, Reduction reduction, Where where) {
  Ops ops("l1Loss", where);
  const Pairs p = pairs(ops, "l1Loss", prediction, target);
  return reducedBy(ops, reduction, summed(ops, p.counts, ops.abs(ops.sub(p.prediction, p.target))));
}

Loss l1Loss(Tensor prediction, Tensor target, Where where) {
  return l1Loss(prediction, target, Reduction::Mean, where);
}

/// Computes c (|d| - c / 2) with c = min(|d|, delta): d^2 / 2 if |d| <= delta, otherwise delta (|d| - delta / 2).
Loss huberLoss(Tensor prediction, Tensor target, double delta, Reduction reduction, Where where) {
  Ops ops("huberLoss", where);
  if (!(delta > 0))
    failRule("huberLoss", 2, fmt::format("delta must be positive, found {}", delta), {}, where);
  const Pairs p = pairs(ops, "huberLoss", prediction, target);
  Value error = ops.sub(p.prediction, p.target), limit = ops.constantLike(error, delta);
  // passes the gradient at NaN, unlike abs
  Value distance = ops.select(ops.compare(Predicate::Lt, error, 0), ops.neg(error), error);
  Value near = ops.select(ops.compare(Predicate::Gt, distance, limit), limit, distance);
  return reducedBy(ops, reduction, summed(ops, p.counts, ops.mul(near, ops.sub(distance, ops.scale(near, 0.5)))));
}

Loss huberLoss(Tensor prediction, Tensor target, Where where) {
  return huberLoss(prediction, target, 1.0, Reduction::Mean, where);
}

/// Computes (1 - t) x + (1 + (positiveWeight - 1) t) softplus(-x) for a logit x with target t.
Loss bceWithLogits(Tensor logits, Tensor target, double positiveWeight, Reduction reduction, Where where) {
  Ops ops("bceWithLogits", where);
  if (!(positiveWeight > 0 && positiveWeight < INFINITY))
    failRule("bceWithLogits", 2, fmt::format("the positive weight must be positive, found {}", positiveWeight), {},
             where);
  const Pairs p = pairs(ops, "bceWithLogits", logits, target);
  Value one = ops.constantLike(p.target, 1), rest = ops.softplus(ops.neg(p.prediction));
  if (positiveWeight != 1)
    rest = ops.mul(ops.add(one, ops.scale(p.target, positiveWeight - 1)), rest);
  Value losses = ops.add(ops.mul(ops.sub(one, p.target), p.prediction), rest);
  return reducedBy(ops, reduction, summed(ops, p.counts, losses));
}

Loss bceWithLogits(Tensor logits, Tensor target, Where where) {
  return bceWithLogits(logits, target, 1.0, Reduction::Mean, where);
}

/// The value is computed from p without a gradient. The gradient is that of slope * p, where slope = (p - t) / max(p (1
/// - p), 1e-12): as in PyTorch, it also exists where a logarithm is limited.
Loss bceLoss(Tensor probabilities, Tensor target, Reduction reduction, Where where) {
  Ops ops("bceLoss", where);
  const Pairs pair = pairs(ops, "bceLoss", probabilities, target);
  Value p = ops.detach(pair.prediction), t = pair.target, least = ops.constantLike(p, -100);
  Value yes = ops.max(ops.log(p), least), no = ops.max(ops.log1p(ops.neg(p)), least);
  Value losses = ops.sub(ops.mul(ops.shift(t, -1), no), ops.mul(t, yes));
  Value spread = ops.max(ops.mul(p, ops.sub(ops.constantLike(p, 1), p)), ops.constantLike(p, 1e-12));
  Value slope = ops.detach(ops.div(ops.sub(p, t), spread));
  losses = ops.add(losses, ops.mul(slope, ops.sub(pair.prediction, p)));
  return reducedBy(ops, reduction, summed(ops, pair.counts, losses));
}

Loss bceLoss(Tensor probabilities, Tensor target, Where where) {
  return bceLoss(probabilities, target, Reduction::Mean, where);
}

Loss klDivLoss(Tensor logProbabilities, Tensor target, KlDivOptions o, Where where) {
  Ops ops("klDivLoss", where);
  if (o.batchMean && o.reduction == Reduction::Sum)
    failRule("klDivLoss", 2, "batchMean is a mean, it excludes Reduction::Sum", {}, where);
  const Pairs p = pairs(ops, "klDivLoss", logProbabilities, target);
  Value losses;
  if (o.logTarget) {
    losses = ops.mul(ops.exp(p.target), ops.sub(p.target, p.prediction));
  } else {
    Value none = ops.compare(Predicate::Eq, p.target, 0), one = ops.constantLike(p.target, 1);
    Value logs = ops.log(ops.select(none, one, p.target));
    losses = ops.select(none, ops.constantLike(p.target, 0), ops.mul(p.target, ops.sub(logs, p.prediction)));
  }
  Loss loss = summed(ops, p.counts, losses);
  if (!o.batchMean)
    return reducedBy(ops, o.reduction, loss);
  const double perRow = static_cast<double>(target.elements() / target.size(0, where));
  loss.weight = Operand(loss.weight, where) * (1 / perRow);
  loss.staticWeight = target.size(0, where);
  return loss;
}

Loss klDivLoss(Tensor logProbabilities, Tensor target, Where where) {
  return klDivLoss(logProbabilities, target, KlDivOptions{}, where);
}

// ---- losses of vectors --------------------------------------------------------------------------------------------

static void checkVectors(const char *name, const std::vector<Tensor> &tensors, Where where) {
  Facts facts;
  bool good = tensors[0].rank() >= 1 && isFloat(tensors[0]);
  for (Tensor tensor : tensors) {
    facts.push_back(fact(tensor, "rows"));
    good &= tensor.shape() == tensors[0].shape() && tensor.dtype() == tensors[0].dtype();
  }
  if (!good)
    failRule(name, 1, "the vectors must have one shape of rank at least 1 and one float type", facts, where);
}

/// max(x, 0), whose gradient at 0 is 0.
static Value notNegative(Ops &ops, Value x) {
  return ops.select(ops.compare(Predicate::Le, x, 0), ops.constantLike(x, 0), x);
}

Loss cosineEmbeddingLoss(Tensor a, Tensor b, Tensor target, CosineEmbeddingOptions o, Where where) {
  constexpr const char *name = "cosineEmbeddingLoss";
  Ops ops(name, where);
  checkVectors(name, {a, b}, where);
  Shape rows = a.shape();
  rows.pop_back();
  if (target.shape() != rows || target.dtype() != a.dtype())
    failRule(name, 2, "the target must have the vectors' shape without the last dimension, and their type",
             {fact(a, "rows"), fact(target, "target")}, where);
  Value t = ops.single(valueOf(target)), counts = ops.compare(Predicate::Eq, t, t);
  Value rowCounts = ops.broadcastBack(counts, a.shape(), {a.rank() - 1});
  const auto known = [&](Tensor v) { // a row that is ignored may have NaN
    Value rows = ops.single(valueOf(v));
    return ops.select(rowCounts, rows, ops.constantLike(rows, 0));
  };
  Value x = known(a), y = known(b);
  const auto dot = [&](Value u, Value v) { return ops.sum(ops.mul(u, v), {a.rank() - 1}); };
  Value squares = ops.mul(ops.shift(dot(x, x), 1e-12), ops.shift(dot(y, y), 1e-12));
  Value cosine = ops.div(dot(x, y), ops.sqrt(squares)), zero = ops.constantLike(cosine, 0);
  Value apart = ops.select(ops.compare(Predicate::Eq, t, -1), notNegative(ops, ops.shift(cosine, -o.margin)), zero);
  Value alike = ops.sub(ops.constantLike(cosine, 1), cosine);
  Value losses = ops.select(ops.compare(Predicate::Eq, t, 1), alike, apart);
  return reducedBy(ops, o.reduction, summed(ops, counts, losses));
}

Loss tripletMarginLoss(Tensor anchor, Tensor positive, Tensor negative, TripletMarginOptions o, Where where) {
  constexpr const char *name = "tripletMarginLoss";
  Ops ops(name, where);
  checkVectors(name, {anchor, positive, negative}, where);
  if (std::isnan(o.p))
    failRule(name, 2, "p must not be NaN", {}, where);
  const auto distance = [&](Tensor a, Tensor b) {
    Value difference = ops.shift(ops.sub(valueOf(a), valueOf(b)), o.eps);
    return valueOf(norm(tensorOf(difference), o.p, {-1}, false, where));
  };
  Value near = distance(anchor, positive), far = distance(anchor, negative);
  if (o.swap)
    far = ops.min(far, distance(positive, negative));
  Value losses = notNegative(ops, ops.shift(ops.sub(near, far), o.margin));
  Value every = ops.constant(Ops::type(losses).clone(ops.trace.element(DType::I1)), 1);
  return reducedBy(ops, o.reduction, summed(ops, every, losses));
}

// ---- connectionist temporal classification ------------------------------------------------------------------------

static void checkCtc(Tensor logs, Tensor labels, const CtcOptions &o, Where where) {
  constexpr const char *name = "ctcLoss";
  const Facts facts = {fact(logs, "log-probabilities"), fact(labels, "labels")};
  if (logs.rank() != 3 || labels.rank() != 2 || logs.size(0) != labels.size(0))
    failRule(name, 1, "the log-probabilities must be [b, t, classes], and the labels [b, l]", facts, where);
  if (labels.dtype() != DType::I32 || (o.lengths.defined() && o.lengths.dtype() != DType::I32))
    failRule(name, 2, "labels and lengths must be i32", facts, where);
  if (o.blank < 0 || o.blank >= logs.size(2))
    failRule(name, 3, fmt::format("the blank {} is not one of {} classes", o.blank, logs.size(2)), facts, where);
  if (o.lengths.defined() && o.lengths.shape() != Shape{logs.size(0)})
    failRule(name, 4, "there must be one length for each sample", {fact(o.lengths, "lengths")}, where);
  checkFloat(name, 5, logs, where);
}

/// Stands for log 0: finite, so that differences are not NaN.
constexpr double logOfNothing = -1e30;

/// log(sum of e^v) of values of one shape, of which none is below logOfNothing by much.
static Value logOfSum(Ops &ops, const std::vector<Value> &values) {
  Value largest = ops.detach(values[0]), sum;
  for (Value v : values)
    largest = ops.max(largest, ops.detach(v));
  for (Value v : values) {
    Value part = ops.exp(ops.sub(v, largest));
    sum = sum ? ops.add(sum, part) : part;
  }
  return ops.add(largest, ops.log(sum));
}

/// The classes of the 2 l + 1 states of each sample: blank, label, blank, ..., label, blank.
static Value ctcStates(Ops &ops, Value labels, int64_t blank) {
  const int64_t b = Ops::size(labels, 0), l = Ops::size(labels, 1);
  Value blanks = ops.constantLike(labels, static_cast<double>(blank));
  Value known = ops.select(ops.compare(Predicate::Ge, labels, 0), labels, blanks);
  Value both = ops.concat({ops.reshape(blanks, {b, l, 1}), ops.reshape(known, {b, l, 1})}, 2);
  return ops.concat({ops.reshape(both, {b, 2 * l}), ops.slice(blanks, 1, 0, 1)}, 1);
}

/// log of the probability of every state [b, states] at a sample's last position, over all ways to it. From a position
/// to the next, a state stays, or goes on by one, or by two if the state between is a blank between different labels.
static Value ctcForward(Ops &ops, Value logs, Value states, Tensor lengths) {
  const int64_t b = Ops::size(logs, 0), positions = Ops::size(logs, 1), count = Ops::size(states, 1);
  Value shown = ops.gather(logs, 2, ops.broadcast(states, {b, positions, count}, {0, 2}));
  Value nothing = ops.constantLike(shown, logOfNothing);
  shown = ops.select(ops.compare(Predicate::Lt, shown, nothing), nothing, shown);
  const auto at = [&](int64_t i) { return ops.reshape(ops.slice(shown, 1, i, i + 1), {b, count}); };
  const auto later = [&](Value v, int64_t by, double first) {
    return ops.concat({ops.constantLike(ops.slice(v, 1, 0, by), first), ops.slice(v, 1, 0, count - by)}, 1);
  };
  Value skips = ops.compare(Predicate::Ne, states, later(states, 2, -1));
  Value first = at(0), none = ops.constantLike(first, logOfNothing);
  Value sums = ops.select(ops.compare(Predicate::Lt, ops.iota({b, count}, 1), 2), first, none);
  for (int64_t i = 1; i < positions; ++i) {
    Value skipped = ops.select(skips, later(sums, 2, logOfNothing), none);
    Value next = ops.add(logOfSum(ops, {sums, later(sums, 1, logOfNothing), skipped}), at(i));
    if (lengths.defined())
      next = ops.select(
          ops.broadcast(ops.compare(Predicate::Gt, valueOf(lengths), static_cast<double>(i)), {b, count}, {0}), next,
          sums);
    sums = next;
  }
  return sums;
}

Loss ctcLoss(Tensor logProbabilities, Tensor labels, CtcOptions o, Where where) {
  Ops ops("ctcLoss", where);
  checkCtc(logProbabilities, labels, o, where);
  readIndices(ops, "ctcLoss", valueOf(labels), IndexRange::labels(logProbabilities.size(2)));
  if (o.lengths.defined())
    readIndices(ops, "ctcLoss (lengths)", valueOf(o.lengths), {.least = 1, .below = logProbabilities.size(1) + 1});
  Value given = valueOf(labels), states = ctcStates(ops, given, o.blank);
  Value sums = ctcForward(ops, ops.single(valueOf(logProbabilities)), states, o.lengths);
  // A sample ends in its last label or in the blank after it: state 2 n - 1 or 2 n for n labels.
  Value number = ops.sum(ops.cast(ops.compare(Predicate::Ge, given, 0), DType::I32), {1});
  const Shape shape = Ops::shape(sums);
  Value end = ops.broadcast(ops.add(number, number), shape, {0}), place = ops.iota(shape, 1);
  const auto ending = [&](Value state) {
    Value hit = ops.compare(Predicate::Eq, place, state);
    return ops.reduce(ReduceKind::Max, ops.select(hit, sums, ops.constantLike(sums, 2 * logOfNothing)), {1});
  };
  Value losses = ops.neg(logOfSum(ops, {ending(end), ending(ops.sub(end, ops.constantLike(end, 1)))}));
  Value impossible = ops.compare(Predicate::Gt, losses, -logOfNothing / 2);
  losses = ops.select(impossible, ops.constantLike(losses, o.zeroInfinity ? 0 : INFINITY), losses);
  if (o.reduction == Reduction::Mean)
    losses = ops.div(losses, ops.toF32(ops.max(number, ops.constantLike(number, 1))));
  Value every = ops.constant(Ops::type(losses).clone(ops.trace.element(DType::I1)), 1);
  return reducedBy(ops, o.reduction, summed(ops, every, losses));
}

Loss ctcLoss(Tensor logProbabilities, Tensor labels, Where where) {
  return ctcLoss(logProbabilities, labels, CtcOptions{}, where);
}

// ---- weighted sum of losses ---------------------------------------------------------------------------------------

/// Whether two values are computed alike from the same operands. (The weight of a cross-entropy depends on its labels
/// alone.)
static bool sameComputation(Value a, Value b) {
  std::set<std::pair<void *, void *>> visited;
  std::vector<std::pair<Value, Value>> open{{a, b}};
  while (!open.empty()) {
    const auto [x, y] = open.back();
    open.pop_back();
    if (x == y || !visited.insert({x.getAsOpaquePointer(), y.getAsOpaquePointer()}).second)
      continue;
    mlir::Operation *of = x.getDefiningOp(), *other = y.getDefiningOp();
    const auto ignoreOperands = [](Value, Value) { return mlir::success(); };
    using Equivalence = mlir::OperationEquivalence;
    if (!of || !other ||
        llvm::cast<mlir::OpResult>(x).getResultNumber() != llvm::cast<mlir::OpResult>(y).getResultNumber() ||
        !Equivalence::isEquivalentTo(of, other, ignoreOperands, nullptr,
                                     Equivalence::IgnoreLocations | Equivalence::IgnoreDiscardableAttrs))
      return false;
    auto entropy = llvm::dyn_cast<CrossEntropyOp>(of);
    for (auto [i, operand] : llvm::enumerate(of->getOperands()))
      if (!entropy || x != entropy.getWeight() || operand == entropy.getLabels())
        open.emplace_back(operand, other->getOperand(i));
  }
  return true;
}

/// The parameter, buffer or random op that a weight depends on, for messages; empty if there is none.
static std::string notData(const Trace &trace, Value weight) {
  llvm::DenseSet<Value> visited;
  std::vector<Value> open{weight};
  while (!open.empty()) {
    const Value value = open.back();
    open.pop_back();
    if (!visited.insert(value).second)
      continue;
    if (const auto name = trace.names.find(value.getAsOpaquePointer()); name != trace.names.end())
      return name->second;
    mlir::Operation *op = value.getDefiningOp();
    if (!op)
      continue;
    if (llvm::isa<RandomUniformOp>(op))
      return "random numbers";
    auto entropy = llvm::dyn_cast<CrossEntropyOp>(op);
    if (entropy && value == entropy.getWeight())
      open.push_back(entropy.getLabels());
    else
      open.insert(open.end(), op->operand_begin(), op->operand_end());
  }
  return "";
}

/// Adds a term to `terms`, or to the term with the same weight.
static void addTerm(std::vector<LossTerm> &terms, const LossTerm &term, double factor, Where where) {
  const Tensor sum = factor == 1 ? term.sum : Operand(term.sum, where) * Operand(factor, where);
  for (LossTerm &known : terms)
    if (sameComputation(valueOf(known.weight), valueOf(term.weight))) {
      known.sum = Operand(known.sum, where) + sum;
      return;
    }
  terms.push_back({sum, term.weight});
}

Loss weightedSum(const std::vector<WeightedLoss> &losses, Where where) {
  Ops ops("weightedSum", where);
  if (losses.empty())
    failRule("weightedSum", 1, "at least one loss is needed, found none", {}, where);
  std::vector<LossTerm> terms;
  for (const auto &[loss, weight] : losses) {
    if (!std::isfinite(weight))
      failRule("weightedSum", 2, fmt::format("weights must be finite, found {}", weight), {}, where);
    addTerm(terms, {loss.sum, loss.weight}, weight, where);
    for (const LossTerm &term : loss.further)
      addTerm(terms, term, weight, where);
  }
  for (const LossTerm &term : terms)
    if (const std::string from = notData(ops.trace, valueOf(term.weight)); terms.size() > 1 && !from.empty())
      failRule("weightedSum", 3,
               fmt::format("the weight of a loss must depend on the data alone, this one depends on {}", from),
               {fact(term.weight, "weight")}, where);
  Loss all = losses[0].loss;
  all.sum = terms[0].sum;
  all.further.assign(terms.begin() + 1, terms.end());
  return all;
}

void LossFunction::checkOne(Tensors outputs, Tensors targets) {
  if (outputs.size() != 1 || targets.size() != 1)
    throw userError(fmt::format("loss: it takes one output and one target, the model returns {} and the data set gives "
                                "{} (a loss may also be a function of two std::span<const Tensor>)",
                                outputs.size(), targets.size()));
}

} // namespace cleave
