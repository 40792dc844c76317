// The training of a case, and its options.
#include "runtime/base/Error.h"
#include "tests/random/Instance.h"
#include "tests/random/Numbers.h"
#include "tests/random/Run.h"
#include "tests/random/Tables.h"

namespace cleave::random_models {

namespace {

Optimizer optimizerOf(const Recipe &r) {
  if (r.optimizer == "adam")
    return Adam{.lr = r.lr, .eps = 1e-3, .weightDecay = r.weightDecay};
  if (r.optimizer == "adamw")
    return AdamW{.lr = r.lr, .eps = 1e-3, .weightDecay = r.weightDecay};
  return Sgd{.lr = r.lr,
             .momentum = r.optimizer == "sgd" ? 0.0 : 0.5,
             .nesterov = r.optimizer == "nesterov",
             .weightDecay = r.weightDecay};
}

LossFunction lossOf(const Recipe &r) {
  const LossKind &loss = lossKind(r.loss);
  if (r.targets() == 1 && r.classes[0].body.others.empty())
    return LossFunction([&loss](Tensor p, Tensor t) { return loss.emit(p, t); });
  if (r.targets() == 1)
    return LossFunction(
        [&loss](std::span<const Tensor> p, std::span<const Tensor> t) { return loss.emit(p[0], t[0]); });
  return LossFunction([&loss](std::span<const Tensor> p, std::span<const Tensor> t) {
    return weightedSum({{loss.emit(p[0], t[0]), 1.0}, {mseLoss(p[1], t[1]), 0.5}});
  });
}

} // namespace

TrainConfig configOf(const Recipe &r) {
  return {.data = std::shared_ptr<Dataset>(std::make_shared<HashedData>(r)),
          .loss = lossOf(r),
          .optimizer = optimizerOf(r),
          .clipNorm = r.clipNorm,
          .ema = r.averages(),
          .batch = r.batch,
          .evalBatch = r.evalBatch,
          .targets = static_cast<int64_t>(r.targets())};
}

RunOptions optionsFor(const Recipe &r) {
  RunOptions options;
  options.mesh = r.mesh;
  options.schedule = r.schedule;
  options.virtualStages = r.virtualStages;
  options.recompute = r.recompute;
  options.sequenceParallel = r.sequence;
  options.zero = r.zero;
  options.scatterGather = r.scatterGather ? "always" : "never";
  options.microbatches = r.microbatches;
  options.threads = 1;
  options.seed = runSeed;
  options.precision = r.precision == "fp32" ? "" : r.precision;
  options.optLevel = r.optLevel;
  options.reduceDtype = r.reduceDtype;
  options.layout = r.layout;
  options.winograd = r.winograd();
  return options;
}

} // namespace cleave::random_models
