// Losses return sums and weights, not means: then any split of the samples adds up to the same number. What is
// minimised and reported is sum / weight over the whole batch.
#pragma once
#include "cleave/Tensor.h"

#include <functional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace cleave {

struct Loss {
  Tensor sum;               ///< over what counts, tensor<f32>
  Tensor weight;            ///< how many counted, tensor<f32>
  Tensor correct = {};      ///< how many were predicted rightly; none where that has no meaning
  int64_t staticWeight = 0; ///< how many there are when nothing is ignored
};

/// logits [..., classes], labels [...] i32; negative labels are ignored.
/// C1: the labels' shape is the logits' without the last dimension. C2: labels are i32.
Loss crossEntropy(Tensor logits, Tensor labels, Where where = Where::current());
/// Squared differences; a target that is NaN is ignored. C1: shapes and element types agree.
Loss mseLoss(Tensor prediction, Tensor target, Where where = Where::current());

struct CrossEntropyOptions {
  double labelSmoothing = 0;            ///< this part of the target is spread over all classes
  std::vector<float> classWeights = {}; ///< one a class; a row counts as much as its label's
  int64_t ignoreIndex = -100;           ///< rows with this label are ignored, as those with a negative one are
};
/// The same with options. What is reported does not depend on a factor common to all class weights; with them no
/// accuracy is reported.
/// C3: 0 <= labelSmoothing < 1. C4: as many weights as classes, none negative, one positive.
Loss crossEntropy(Tensor logits, Tensor labels, CrossEntropyOptions options, Where where = Where::current());
/// crossEntropy of log-probabilities [..., classes] that the model gives: minus that of the label. No smoothing.
Loss nllLoss(Tensor logProbabilities, Tensor labels, Where where = Where::current());
Loss nllLoss(Tensor logProbabilities, Tensor labels, CrossEntropyOptions options, Where where = Where::current());

// Of predictions and targets of equal shapes and element types (C1). A target that is NaN is ignored.

/// Absolute differences.
Loss l1Loss(Tensor prediction, Tensor target, Where where = Where::current());
/// d^2 / 2 for differences d up to delta, then delta (|d| - delta / 2) (Huber 1964). C2: delta is positive.
Loss huberLoss(Tensor prediction, Tensor target, Where where = Where::current());
Loss huberLoss(Tensor prediction, Tensor target, double delta, Where where = Where::current());
/// Binary cross-entropy of logits: -(weight t log s + (1 - t) log(1 - s)), s = sigmoid(logit). C2: the weight of the
/// positive targets is positive.
Loss bceWithLogits(Tensor logits, Tensor target, Where where = Where::current());
Loss bceWithLogits(Tensor logits, Tensor target, double positiveWeight, Where where = Where::current());

struct KlDivOptions {
  bool logTarget = false; ///< the target holds log-probabilities
  bool batchMean = false; ///< the weight counts rows of dimension 0, which is the divergence, not elements
};
/// target (log target - logProbabilities), 0 where the target is 0.
Loss klDivLoss(Tensor logProbabilities, Tensor target, Where where = Where::current());
Loss klDivLoss(Tensor logProbabilities, Tensor target, KlDivOptions options, Where where = Where::current());

/// A loss and how much it counts.
struct WeightedLoss {
  Loss loss;
  double weight = 1;
};

/// Several losses as one: `weightedSum({{crossEntropy(words, labels), 1.0}, {mseLoss(lengths, targets), 0.1}})`. Where
/// nothing is ignored, what is minimised is the sum of weight * mean over all of them. The first is the main one: how
/// many counted, and how many were predicted rightly, is what it says; the others' sums are scaled to as many elements
/// as it has (sum = sum of weight_i sum_i n_1 / n_i with n = staticWeight), so that sums and weights still add up over
/// any split. C1: at least one loss. C2: weights are finite.
Loss weightedSum(const std::vector<WeightedLoss> &losses, Where where = Where::current());

/// What TrainConfig::loss takes: one of the above, a function of (prediction, target) that returns a Loss, or, for
/// models of several outputs and data of several targets, a function of (outputs, targets), both
/// std::span<const Tensor>.
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
  /// A user error unless there is one of each.
  static void checkOne(Tensors outputs, Tensors targets);
  std::function<Loss(Tensors, Tensors)> call;
};

} // namespace cleave
