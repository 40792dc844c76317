// Compares command line options with a stored plan, and completes options from a plan or checkpoint.
#include "frontend/program/StoredOptions.h"
#include "frontend/program/Options.h"
#include "frontend/program/OwnOptions.h"
#include "frontend/program/ResolvedOptions.h"
#include "runtime/base/Error.h"
#include "runtime/base/JsonText.h"
#include "runtime/checkpoint/TrainingJson.h"
#include "runtime/plan/Inputs.h"
#include "runtime/plan/Text.h"
#include "runtime/plan/plan_generated.h"
#include "runtime/session/Launcher.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <fmt/format.h>

namespace cleave {

void checkAgainstPlan(const PlanFile &file, const Model &model, const RunOptions &given) {
  const plan::Plan &plan = file.plan();
  const std::string planned = text(plan.model());
  if (planned != model.name)
    throw userError(
        fmt::format("--plan {}: the plan is for model {}, but this program is {}", file.name(), planned, model.name));
  for (const Option &option : programOptions()) {
    const std::optional<std::string> value = valueOf(option, given);
    if (!value)
      continue;
    if (option.refused)
      throw userError(
          fmt::format("{}: cannot be combined with --plan {}, {}", option.name, file.name(), option.refused));
    if (!option.planned)
      continue;
    if (const std::optional<std::string> other = option.planned(plan, given))
      throw userError(fmt::format("{} {}: the plan {} has {}", option.name, *value, file.name(), *other));
  }
}

/// Takes the stored optimizer if the options do not name one. If they name another optimizer, that optimizer's defaults
/// apply.
static void takeTraining(const plan::TrainingT &training, RunOptions &options) {
  if (!training.optimizer)
    return;
  if (const plan::LearningRateT *rate = training.rate.get(); rate && options.lrSchedule.empty()) {
    const bool falls = rate->kind == plan::RateKind::Cosine || rate->kind == plan::RateKind::WarmupCosine;
    options.lrSchedule = rate->kind == plan::RateKind::Step ? "step"
                         : falls && rate->min != rate->base ? "cosine"
                                                            : "constant";
    if (rate->warmup_epochs > 0 && !options.warmupEpochs)
      options.warmupEpochs = rate->warmup_epochs;
    if (rate->every_epochs > 0 && !options.everyEpochs)
      options.everyEpochs = rate->every_epochs;
  }
  const std::string name = optimizerNameOf(training);
  if (options.optimizer.empty())
    options.optimizer = name;
  if (options.optimizer != name)
    return;
  const auto number = [](std::optional<double> &option, double stored) { option = option.value_or(stored); };
  if (training.rate)
    number(options.lr, training.rate->base);
  number(options.weightDecay, training.optimizer->weight_decay);
  number(options.ema, training.optimizer->ema);
  if (training.optimizer->kind == plan::OptimizerKind::Sgd)
    number(options.momentum, training.optimizer->momentum);
}

/// Takes the precision from a stored training if the options do not set it.
static void takePrecision(const plan::TrainingT &training, RunOptions &options) {
  if (!options.precision.empty() || !options.optLevel.empty())
    return;
  const Precision::Words stored = precisionOf(training).words();
  options.precision = stored.type;
  options.optLevel = stored.level;
  if (options.lossScale.empty())
    options.lossScale = stored.lossScale;
  if (options.reduceDtype.empty())
    options.reduceDtype = stored.reduce;
}

void takeTransforms(const std::string &stored, plan::DataT &data) {
  plan::DataT trained = parseData(stored);
  if (trained.kind != plan::DataKind::Pictures)
    return;
  const auto same = [](const auto &a, const auto &b) { return a->kind == b->kind && a->numbers == b->numbers; };
  if (!std::ranges::equal(trained.eval, data.eval, same) && launchedRank() == 0)
    std::fputs("warning: the program's transforms of evaluation are not those of the checkpoint, which are used\n",
               stderr);
  data.eval = std::move(trained.eval);
  if (data.class_names.empty())
    data.class_names = std::move(trained.class_names);
}

void takeFromPlan(const PlanFile &file, RunOptions &options) {
  const plan::Plan &plan = file.plan();
  options.mesh = partitioner::meshText(meshOf(plan));
  options.batch = plan.batch();
  options.evalBatch = evalBatchOf(plan);
  options.microbatches = plan.microbatches();
  options.seed = plan.seed();
  const plan::TrainingT training = trainingOf(plan);
  takeTraining(training, options);
  takePrecision(training, options);
}

void takeFromLike(const Model &model, RunOptions &options) {
  const auto file = PlanFile::load(options.like);
  const plan::Plan &plan = file->plan();
  if (const std::string planned = text(plan.model()); planned != model.name)
    throw userError(
        fmt::format("--like {}: the plan is for model {}, but this program is {}", options.like, planned, model.name));
  const bool searches = !isStrategyFile(options.strategy) && (plan.search() || isStrategyKind(options.strategy));
  if (searches && options.devices == 0 && options.mesh.empty() && plan.ranks())
    options.devices = plan.ranks()->size();
  if (!givesBatch(options))
    options.batch = plan.batch();
  if (!options.evalBatch && evalBatchOf(plan) != plan.batch())
    options.evalBatch = evalBatchOf(plan);
  options.seed = options.seed.value_or(plan.seed());
  options.threads = options.threads.value_or(plan.threads());
  if (options.layout.empty() && plan.choices())
    options.layout = plan.choices()->channels_last() ? "nhwc" : "nchw";
  if (options.winograd.empty() && plan.choices())
    options.winograd = std::array{"auto", "never", "always"}.at(static_cast<size_t>(plan.choices()->winograd()));
  if (options.backend.empty() && options.cluster.empty())
    options.backend = text(plan.backend());
  if (options.target.empty() && options.cluster.empty())
    options.target = text(plan.target());
  const plan::TrainingT training = trainingOf(plan);
  takeTraining(training, options);
  takePrecision(training, options);
}

void takeFromCheckpoint(const CheckpointInfo &info, RunOptions &options) {
  if (!givesBatch(options) && info.batch > 0)
    options.batch = info.batch;
  if (!options.microbatches && info.microbatches > 0 && !isStrategyFile(options.strategy)) // which sets it
    options.microbatches = info.microbatches;
  if (!options.evalBatch && info.evalBatch)
    options.evalBatch = info.evalBatch;
  if (!options.seed)
    options.seed = info.seed;
  const plan::TrainingT training = parseTraining(info.training);
  takeTraining(training, options);
  takePrecision(training, options);
}

ValuesToAgree valuesToAgree(const Model &model, const RunOptions &options) {
  ValuesToAgree values{{"model", model.name}};
  const nlohmann::json own = parseJson(model.options, "the model's options");
  for (const auto &[key, value] : own.items())
    values.emplace_back("--" + key, textOfStored(value));
  for (auto &value : valuesToAgree(programOptions(), options))
    values.push_back(std::move(value));
  return values;
}

} // namespace cleave
