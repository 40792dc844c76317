// Losses return sums and weights, not means, so that any split of the samples gives the same total. Training minimises
// and reports sum / weight over the whole batch.
#pragma once
#include "cleave/Tensor.h"

#include <functional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace cleave {

/// A term of a loss with several terms.
struct LossTerm {
  Tensor sum, weight; ///< tensor<f32>
};

/// Rows whose label is among the `k` largest predictions.
struct TopCorrect {
  int64_t k;
  Tensor count; ///< tensor<f32>
};

struct Loss {
  Tensor sum;                       ///< over all elements that count, tensor<f32>
  Tensor weight;                    ///< number of elements that count, tensor<f32>
  Tensor correct = {};              ///< number of correct predictions; empty if not applicable
  int64_t staticWeight = 0;         ///< number of elements if none is ignored
  std::vector<TopCorrect> top = {}; ///< reported beside `correct`
  /// The loss is sum / weight plus the same quotient of each of these (weightedSum).
  std::vector<LossTerm> further = {};
};

/// Mean: training minimises the mean over all elements that count. Sum: their sum over the batch, whatever the split
/// and the number of microbatches; evaluation reports the sum per batch of the training's size, and no accuracy.
enum class Reduction : uint8_t { Mean, Sum };

/// Sum of -log softmax(logits)[label] over rows: logits [..., classes], labels [...] i32; rows with a negative label
/// are ignored. With labels of the logits' shape and float type, which are probabilities of the classes: -sum of
/// probability * log softmax(logits); rows with NaN are ignored, and no accuracy is reported. C1: the labels' shape is
/// the logits' without the last dimension. C2: labels are i32.
Loss crossEntropy(Tensor logits, Tensor labels, Where where = Where::current());
/// Squared differences. Elements whose target is NaN are ignored. C1: shapes and element types agree.
Loss mseLoss(Tensor prediction, Tensor target, Where where = Where::current());
Loss mseLoss(Tensor prediction, Tensor target, Reduction reduction, Where where = Where::current());

/// The number of rows whose label is among the k first classes by their logits [..., classes]: of equal logits, the
/// lower class is first; a row whose label has the logit NaN does not count. Labels [...] i32; rows with a negative
/// label do not count. C1 and C2 as for crossEntropy. C3: k is positive.
///
///   Loss loss = crossEntropy(logits, labels);
///   loss.top = {{5, topCorrect(logits, labels, 5)}}; // accuracy_top5 in results and metrics
Tensor topCorrect(Tensor logits, Tensor labels, int64_t k, Where where = Where::current());

struct CrossEntropyOptions {
  double labelSmoothing = 0;            ///< this fraction of the target is spread evenly over all classes
  std::vector<float> classWeights = {}; ///< one per class; a row has the weight of its label
  int64_t ignoreIndex = -100;           ///< rows with this label are ignored, as are rows with a negative label
  Reduction reduction = Reduction::Mean;
};
/// Cross-entropy with options. Multiplying all class weights by the same factor does not change the mean for labels;
/// for probabilities, the mean is over rows, whatever the class weights. With class weights, no accuracy is reported.
/// C3: 0 <= labelSmoothing < 1. C4: one weight per class, none negative, at least one positive.
Loss crossEntropy(Tensor logits, Tensor labels, CrossEntropyOptions options, Where where = Where::current());
/// crossEntropy for a model that returns log-probabilities [..., classes]. Label smoothing is an error (C3).
Loss nllLoss(Tensor logProbabilities, Tensor labels, Where where = Where::current());
Loss nllLoss(Tensor logProbabilities, Tensor labels, CrossEntropyOptions options, Where where = Where::current());

// In the following losses, prediction and target have equal shapes and one float type (C1). Elements whose target is
// NaN are ignored.

/// Absolute differences.
Loss l1Loss(Tensor prediction, Tensor target, Where where = Where::current());
Loss l1Loss(Tensor prediction, Tensor target, Reduction reduction, Where where = Where::current());
/// For a difference d: d^2 / 2 if |d| <= delta, otherwise delta (|d| - delta / 2) (Huber 1964). Without an argument,
/// delta is 1. C2: delta is positive.
Loss huberLoss(Tensor prediction, Tensor target, Where where = Where::current());
Loss huberLoss(Tensor prediction, Tensor target, double delta, Reduction reduction = Reduction::Mean,
               Where where = Where::current());
/// Binary cross-entropy of logits with targets t: -(positiveWeight t log s + (1 - t) log(1 - s)), s = sigmoid(logit).
/// Without an argument, positiveWeight is 1. C2: positiveWeight is positive and finite.
Loss bceWithLogits(Tensor logits, Tensor target, Where where = Where::current());
Loss bceWithLogits(Tensor logits, Tensor target, double positiveWeight, Reduction reduction = Reduction::Mean,
                   Where where = Where::current());
/// Binary cross-entropy of probabilities p in [0, 1] with targets t: -(t log p + (1 - t) log(1 - p)). As in PyTorch,
/// logarithms are at least -100, and p (1 - p) counts as at least 1e-12 in the gradient.
Loss bceLoss(Tensor probabilities, Tensor target, Where where = Where::current());
Loss bceLoss(Tensor probabilities, Tensor target, Reduction reduction, Where where = Where::current());

struct KlDivOptions {
  bool logTarget = false; ///< the target holds log-probabilities
  bool batchMean = false; ///< the loss's weight counts rows (dimension 0) instead of elements: mean divergence per row
  Reduction reduction = Reduction::Mean;
};
/// Kullback-Leibler divergence: target (log target - logProbabilities), 0 where the target is 0. C2: batchMean is not
/// given together with Reduction::Sum.
Loss klDivLoss(Tensor logProbabilities, Tensor target, Where where = Where::current());
Loss klDivLoss(Tensor logProbabilities, Tensor target, KlDivOptions options, Where where = Where::current());

// Losses of vectors [..., width], one number for each row.

struct CosineEmbeddingOptions {
  double margin = 0;
  Reduction reduction = Reduction::Mean;
};
/// For the cosine c of the rows a and b: 1 - c if the target is 1, max(c - margin, 0) if it is -1, and 0 for any other
/// target; rows whose target is NaN are ignored. C1: a and b have one shape of rank at least 1 and one float type. C2:
/// the target has their shape without the last dimension, and their type.
Loss cosineEmbeddingLoss(Tensor a, Tensor b, Tensor target, CosineEmbeddingOptions options = {},
                         Where where = Where::current());

struct TripletMarginOptions {
  double margin = 1, p = 2;
  double eps = 1e-6; ///< added to every difference
  bool swap = false; ///< the distance to the negative is at most that between positive and negative
  Reduction reduction = Reduction::Mean;
};
/// max(d(anchor, positive) - d(anchor, negative) + margin, 0), where d is the p-norm of the difference (Balntas et al.
/// 2016). C1: the three have one shape of rank at least 1 and one float type. C2: p is not NaN.
Loss tripletMarginLoss(Tensor anchor, Tensor positive, Tensor negative, TripletMarginOptions options = {},
                       Where where = Where::current());

struct CtcOptions {
  int64_t blank = 0;         ///< the class that stands for no label
  Tensor lengths = {};       ///< [b] i32: only that many positions of a sample count, at least 1; empty: all
  bool zeroInfinity = false; ///< a sample that has more labels than its positions can show counts as 0, not as infinity
  Reduction reduction = Reduction::Mean;
};
/// Connectionist temporal classification (Graves et al. 2006): -log of the probability that the positions show the
/// labels in this order, each at one or more consecutive positions, with blanks between them. logProbabilities [b, t,
/// classes], labels [b, l] i32; negative labels at a row's end do not exist. Mean: the mean over samples of the value
/// divided by the number of labels (at least 1). The trace has a few ops for every position. C1: the ranks are 3 and 2,
/// and b agrees. C2: labels and lengths are i32. C3: 0 <= blank < classes. C4: lengths are [b]. C5: the
/// log-probabilities have a float type.
Loss ctcLoss(Tensor logProbabilities, Tensor labels, Where where = Where::current());
Loss ctcLoss(Tensor logProbabilities, Tensor labels, CtcOptions options, Where where = Where::current());

/// A loss with its factor in a weighted sum.
struct WeightedLoss {
  Loss loss;
  double weight = 1;
};

/// Combines several losses: `weightedSum({{crossEntropy(words, labels), 1.0}, {mseLoss(lengths, targets), 0.1}})`.
/// Training minimises the sum of weight * mean over the losses, whatever each of them ignores. A loss of which no
/// element of a batch counts adds nothing. The result has the accuracy of the first loss. Losses with the same weight
/// are one term; the weights of several terms are summed over the whole batch before the first forward pass, because
/// every gradient depends on them. C1: at least one loss. C2: weights are finite. C3: with several terms, the weights
/// of the losses depend on the data set's fields alone.
Loss weightedSum(const std::vector<WeightedLoss> &losses, Where where = Where::current());

/// The type of TrainConfig::loss: one of the functions above; a function of (prediction, target) that returns a Loss;
/// or, for several outputs and targets, a function of (outputs, targets), both std::span<const Tensor>.
class LossFunction {
public:
  using Function = Loss (*)(Tensor, Tensor, Where);
  using Tensors = std::span<const Tensor>;
  LossFunction() = default;
  LossFunction(Function function, Where where = Where::current())
      : call([=](Tensors outputs, Tensors targets) {
          checkOne(outputs, targets);
          return function(outputs[0], targets[0], where);
        }) {}
  template <class F>
    requires std::is_invocable_r_v<Loss, F &, Tensor, Tensor>
  LossFunction(F function)
      : call([function = std::move(function)](Tensors outputs, Tensors targets) mutable -> Loss {
          checkOne(outputs, targets);
          return function(outputs[0], targets[0]);
        }) {}
  template <class F>
    requires std::is_invocable_r_v<Loss, F &, Tensors, Tensors>
  LossFunction(F function) : call(std::move(function)) {}

  Loss operator()(Tensor prediction, Tensor target) const { return call({&prediction, 1}, {&target, 1}); }
  Loss operator()(Tensors outputs, Tensors targets) const { return call(outputs, targets); }
  explicit operator bool() const { return bool(call); }

private:
  /// Throws a user error unless there is exactly one output and one target.
  static void checkOne(Tensors outputs, Tensors targets);
  std::function<Loss(Tensors, Tensors)> call;
};

} // namespace cleave
