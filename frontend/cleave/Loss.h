// Losses return sums and weights, not means: then any split of the samples adds up to the same number. What is
// minimised and reported is sum / weight over the whole batch.
#pragma once
#include "cleave/Tensor.h"

#include <functional>

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

/// What TrainConfig::loss takes: one of the above, or a function of (prediction, target) that returns a Loss.
class LossFunction {
public:
  using Function = Loss (*)(Tensor, Tensor, Where);
  LossFunction() = default;
  LossFunction(Function function, Where where = Where::current())
      : call([=](Tensor prediction, Tensor target) { return function(prediction, target, where); }) {}
  template <class F, class = std::enable_if_t<std::is_invocable_r_v<Loss, F, Tensor, Tensor>>>
  LossFunction(F function) : call(std::move(function)) {}

  Loss operator()(Tensor prediction, Tensor target) const { return call(prediction, target); }
  explicit operator bool() const { return bool(call); }

private:
  std::function<Loss(Tensor, Tensor)> call;
};

} // namespace cleave
