// Compares command line options with a stored plan, and completes options from a plan or checkpoint.
#include "frontend/program/Given.h"
#include "frontend/program/Job.h"
#include "frontend/trace/TraceModel.h"
#include "runtime/base/Error.h"
#include "runtime/checkpoint/TrainingJson.h"
#include "runtime/plan/Inputs.h"
#include "runtime/plan/Slices.h"
#include "runtime/plan/plan_generated.h"

#include <filesystem>
#include <fmt/format.h>

namespace cleave {

namespace {

class Comparison {
public:
  explicit Comparison(const PlanFile &plan) : name(plan.name()) {}

  template <class T> void same(const char *option, const T &given, const T &found) {
    if (given != found)
      throw userError(fmt::format("{} {}: the plan {} has {}", option, given, name, found));
  }
  template <class T> void same(const char *option, const std::optional<T> &given, const T &found) {
    if (given)
      same(option, *given, found);
  }
  void word(const char *option, const std::string &given, const flatbuffers::String *found) {
    if (!given.empty())
      same(option, given, found ? found->str() : std::string());
  }

private:
  std::string name;
};

std::string meshOf(const plan::Plan &plan) {
  std::string text;
  if (plan.mesh())
    for (const auto *axis : *plan.mesh())
      text += fmt::format("{}{}={}", text.empty() ? "" : ",", axis->name() ? axis->name()->str() : "", axis->size());
  return text;
}

plan::TrainingT trainingOf(const plan::Plan &plan) {
  plan::TrainingT training;
  if (plan.training())
    plan.training()->UnPackTo(&training);
  return training;
}

void checkMesh(Comparison &compare, const plan::Plan &plan, const RunOptions &options) {
  if (options.mesh.empty())
    return;
  const Mesh mesh = partitioner::parseMesh(options.mesh);
  for (const MeshAxis &axis : mesh.axes)
    if (axis.size != sizeOfAxis(plan, axis.name))
      compare.same("--mesh", options.mesh, meshOf(plan));
}

/// Compares the given optimizer options with the plan's.
void checkTraining(Comparison &compare, const plan::Plan &plan, const RunOptions &options) {
  const plan::TrainingT training = trainingOf(plan);
  const Precision::Words precision = precisionOf(training).words();
  const auto word = [&](const char *option, const std::string &given, const std::string &stored) {
    if (!given.empty())
      compare.same(option, given, stored);
  };
  word("--precision", options.precision, precision.type);
  word("--opt-level", options.optLevel, precision.level);
  word("--loss-scale", options.lossScale, precision.lossScale);
  word("--reduce-dtype", options.reduceDtype, precision.reduce);
  if (!training.optimizer)
    return;
  word("--optimizer", options.optimizer, optimizerNameOf(training));
  compare.same("--lr", options.lr, training.rate ? training.rate->base : 0.0);
  compare.same("--momentum", options.momentum, training.optimizer->momentum);
  compare.same("--weight-decay", options.weightDecay, training.optimizer->weight_decay);
}

bool wasSearched(const plan::Plan &plan) { return plan.choices() && plan.choices()->searched(); }

} // namespace

void checkAgainstPlan(const PlanFile &file, const Model &model, const RunOptions &options) {
  const plan::Plan &plan = file.plan();
  Comparison compare(file);
  const std::string planned = plan.model() ? plan.model()->str() : "";
  if (planned != model.name)
    throw userError(
        fmt::format("--plan {}: the plan is for model {}, but this program is {}", file.name(), planned, model.name));
  checkMesh(compare, plan, options);
  if (options.schedule != partitioner::searchedSchedule || !wasSearched(plan)) // a search may find a published schedule
    compare.word("--schedule", options.schedule, plan.schedule());
  compare.word("--backend", options.backend, plan.backend());
  compare.same("--batch", options.batch, static_cast<int64_t>(plan.batch()));
  compare.same("--eval-batch", options.evalBatch, evalBatchOf(plan));
  const int64_t dp = sizeOfAxis(plan, "dp");
  if (options.batchPerRank && globalBatch(*options.batchPerRank, dp) != plan.batch())
    throw userError(fmt::format("--batch-per-rank {}: with dp={} that is a global batch of {}, the plan {} has {}",
                                *options.batchPerRank, dp, globalBatch(*options.batchPerRank, dp), file.name(),
                                plan.batch()));
  compare.same("--microbatches", options.microbatches, static_cast<int64_t>(plan.microbatches()));
  compare.same("--seed", options.seed, static_cast<uint64_t>(plan.seed()));
  checkTraining(compare, plan, options);
  if (!options.layout.empty())
    throw userError(fmt::format("--layout: cannot be combined with --plan {}, which has a fixed layout", file.name()));
  for (auto [option, given] : {std::pair("--recompute", !options.recompute.empty()),
                               {"--sequence-parallel", options.sequenceParallel},
                               {"--zero", options.zero.has_value()},
                               {"--scatter-gather", !options.scatterGather.empty()},
                               {"--virtual", options.virtualStages.has_value()}})
    if (given)
      throw userError(
          fmt::format("{}: cannot be combined with --plan {}, which contains its strategy", option, file.name()));
  if (!options.strategy.empty() || options.devices > 0)
    throw userError(
        fmt::format("--strategy: cannot be combined with --plan {}, which contains its strategy", file.name()));
}

/// Takes the stored optimizer if the options do not name one. If they name another optimizer, that optimizer's defaults
/// apply.
static void takeTraining(const plan::TrainingT &training, RunOptions &options) {
  if (!training.optimizer)
    return;
  const std::string name = optimizerNameOf(training);
  if (options.optimizer.empty())
    options.optimizer = name;
  if (options.optimizer != name)
    return;
  const auto number = [](std::optional<double> &option, double stored) { option = option.value_or(stored); };
  if (training.rate)
    number(options.lr, training.rate->base);
  number(options.weightDecay, training.optimizer->weight_decay);
  if (training.optimizer->kind == plan::OptimizerKind::Sgd)
    number(options.momentum, training.optimizer->momentum);
}

void takePrecision(const plan::TrainingT &training, RunOptions &options) {
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

void takeFromPlan(const PlanFile &file, RunOptions &options) {
  const plan::Plan &plan = file.plan();
  options.mesh = meshOf(plan);
  options.batch = plan.batch();
  options.evalBatch = evalBatchOf(plan);
  options.microbatches = plan.microbatches();
  options.seed = plan.seed();
  const plan::TrainingT training = trainingOf(plan);
  takeTraining(training, options);
  takePrecision(training, options);
}

void takeFromCheckpoint(const CheckpointInfo &info, RunOptions &options) {
  if (!givesBatch(options) && info.batch > 0)
    options.batch = info.batch;
  const bool file = !options.strategy.empty() && !isStrategyKind(options.strategy);
  if (!options.microbatches && info.microbatches > 0 && !file) // a strategy file sets it
    options.microbatches = info.microbatches;
  if (!options.evalBatch && info.evalBatch)
    options.evalBatch = info.evalBatch;
  if (!options.seed)
    options.seed = info.seed;
  const plan::TrainingT training = parseTraining(info.training);
  takeTraining(training, options);
  takePrecision(training, options);
}

GivenValues givenValues(const Model &model, const RunOptions &o) {
  const auto flag = [](bool set) { return std::string(set ? "given" : "not given"); };
  const auto number = [](const auto &value) { return value ? fmt::format("{}", *value) : std::string("not given"); };
  const auto word = [](const std::string &text) { return text.empty() ? std::string("not given") : text; };
  std::error_code error;
  const bool file = std::filesystem::is_regular_file(o.strategy, error);
  return {{"model", model.name},
          {"option of the model", model.options},
          {"--plan", digestOfFile(o.plan)},
          {"--mesh", word(o.mesh)},
          {"--devices", fmt::format("{}", o.devices)},
          {"--strategy", file ? digestOfFile(o.strategy) : word(o.strategy)},
          {"--schedule", word(o.schedule)},
          {"--virtual", number(o.virtualStages)},
          {"--microbatches", number(o.microbatches)},
          {"--batch", number(o.batch)},
          {"--eval-batch", number(o.evalBatch)},
          {"--batch-per-rank", number(o.batchPerRank)},
          {"--seed", number(o.seed)},
          {"--epochs", number(o.epochs)},
          {"--steps", number(o.steps)},
          {"--backend", word(o.backend)},
          {"--optimizer", word(o.optimizer)},
          {"--lr", number(o.lr)},
          {"--momentum", number(o.momentum)},
          {"--weight-decay", number(o.weightDecay)},
          {"--recompute", word(o.recompute)},
          {"--zero", number(o.zero)},
          {"--scatter-gather", word(o.scatterGather)},
          {"--sequence-parallel", flag(o.sequenceParallel)},
          {"--target", word(o.target)},
          {"--precision", word(o.precision)},
          {"--opt-level", word(o.optLevel)},
          {"--loss-scale", word(o.lossScale)},
          {"--reduce-dtype", word(o.reduceDtype)},
          {"--layout", word(o.layout)},
          {"--data", o.data == "synthetic" ? o.data : flag(!o.data.empty())},
          {"--checkpoint", flag(!o.checkpoint.empty())},
          {"--checkpoint-every", word(o.checkpointEvery)},
          {"--resume-if-any", flag(o.resumeIfAny)},
          {o.resumeIfAny ? "checkpoint to resume" : "--resume", flag(o.resume)},
          {"--at-step", number(o.atStep)},
          {"--overwrite", flag(o.overwrite)},
          {"--keep", number(o.keep)},
          {"--keep-going", flag(o.keepGoing)},
          {"--find-nan", flag(o.findNan)},
          {"--trace", flag(!o.trace.empty())}};
}

} // namespace cleave
