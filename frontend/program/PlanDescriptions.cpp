// Describes data sets, learning rates and optimizers for plans.
#include "frontend/program/PlanDescriptions.h"
#include "frontend/trace/TraceModel.h"
#include "runtime/checkpoint/TrainingJson.h"
#include "runtime/plan/StoredTransforms.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>

namespace cleave {

plan::DataT dataOf(const Data &data) {
  constexpr plan::DataKind kind[] = {plan::DataKind::Mnist, plan::DataKind::Text, plan::DataKind::Synthetic,
                                     plan::DataKind::Custom, plan::DataKind::Pictures};
  plan::DataT stored;
  stored.kind = kind[data.index()];
  for (const DataField &field : fieldsOf(data)) {
    auto &entry = stored.fields.emplace_back(std::make_unique<plan::DataFieldT>());
    entry->name = field.name;
    entry->dtype = planned(field.dtype);
    entry->shape = field.shape;
    entry->classes = std::max<int64_t>(0, field.classes);
  }
  if (const Text *text = std::get_if<Text>(&data)) {
    stored.context = text->context;
    stored.vocab = text->vocab;
  }
  if (const Pictures *pictures = std::get_if<Pictures>(&data)) {
    stored.train = storedTransforms(pictures->train);
    stored.eval = storedTransforms(pictures->eval);
  }
  return stored;
}

static plan::LearningRateT rateOf(const LearningRateSchedule &schedule, double base) {
  plan::LearningRateT rate;
  rate.base = base;
  if (const StepLr *step = std::get_if<StepLr>(&schedule)) {
    rate.kind = plan::RateKind::Step;
    rate.every = step->every;
    rate.gamma = step->gamma;
    rate.every_epochs = step->everyEpochs;
    rate.warmup_epochs = step->warmupEpochs;
  } else if (const CosineLr *cosine = std::get_if<CosineLr>(&schedule)) {
    rate.kind = cosine->warmup > 0 || cosine->warmupEpochs > 0 ? plan::RateKind::WarmupCosine : plan::RateKind::Cosine;
    rate.warmup_epochs = cosine->warmupEpochs;
    rate.min = cosine->min;
    rate.warmup = cosine->warmup;
    rate.steps = cosine->steps;
  } else if (const WarmupLr *warmup =
                 std::get_if<WarmupLr>(&schedule)) { // a cosine from the base to the base is constant
    rate.kind = plan::RateKind::WarmupCosine;
    rate.min = base;
    rate.warmup = warmup->warmup;
    rate.warmup_epochs = warmup->warmupEpochs;
  }
  return rate;
}

plan::TrainingT trainingOf(const TrainConfig &config, const Precision &precision) {
  plan::TrainingT stored;
  storePrecision(precision, stored);
  stored.rate = std::make_unique<plan::LearningRateT>(rateOf(config.learningRate, learningRate(config.optimizer)));
  stored.optimizer = std::make_unique<plan::OptimizerT>(optimizerOf(config));
  return stored;
}

} // namespace cleave
