// Training, evaluation, prediction and compilation, for Program's commands and for users' own main functions.
#include "cleave/Trainer.h"
#include "frontend/program/Advice.h"
#include "frontend/program/Check.h"
#include "frontend/program/Files.h"
#include "frontend/program/Options.h"
#include "frontend/program/PlanDescriptions.h"
#include "frontend/program/PredictorImpl.h"
#include "frontend/program/ResolvedOptions.h"
#include "frontend/program/StoredOptions.h"
#include "frontend/trace/TraceModel.h"
#include "passes/pipeline/Pipeline.h"
#include "passes/search/Planner.h"
#include "runtime/base/Error.h"
#include "runtime/base/IdlePages.h"
#include "runtime/base/Sha256.h"
#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/checkpoint/Manifest.h"
#include "runtime/checkpoint/TrainingJson.h"
#include "runtime/executor/Executor.h"
#include "runtime/plan/Inputs.h"
#include "runtime/plan/plan_generated.h"
#include "runtime/session/Interrupt.h"
#include "runtime/session/Launcher.h"
#include "runtime/session/ProcessWorld.h"
#include "runtime/session/Session.h"
#include "runtime/session/Setup.h"
#include "runtime/session/SharedPlan.h"

#include <chrono>
#include <cstdio>
#include <fmt/format.h>
#include <optional>
#include <set>
#include <utility>

namespace cleave {

struct Trainer::Impl {
  Model model;
  TrainConfig config;

  /// Traces the model with so many rows in a microbatch of training, and of evaluation; of a prediction, its outputs.
  /// Prints the warnings of a training on the first call.
  GraphModule traceRows(const ResolvedOptions &resolved, int64_t rows, int64_t evalRows);
  /// The same with the request's rows.
  GraphModule trace(const ResolvedOptions &resolved);
  /// The plan of a request. `traced`: its model, if it has been traced. --search-seconds and, if `interruptible`, an
  /// interrupt end a search. Warns, once, if the number of microbatches changes what the model computes.
  std::shared_ptr<const PlanFile> make(const ResolvedOptions &resolved, const RunOptions &options,
                                       std::optional<GraphModule> traced = std::nullopt, bool interruptible = false);
  /// All options of a run. Without training, its batch is that of evaluation. `trained`: the checkpoint that is read;
  /// null: none. A resumed training uses no more threads than before, so that it gives the same bits; an evaluation
  /// uses the transforms of the training's pictures.
  ResolvedOptions resolve(RunOptions options, RunsOn place, passes::Purpose purpose = passes::Purpose::Training,
                          const CheckpointInfo *trained = nullptr) const;
  /// Warns, once, if the number of microbatches changes what the plan's model computes.
  void warnOfMicrobatches(const plan::Plan &plan);
  /// The plan of --like, if only --alternatives is asked besides; else null.
  std::shared_ptr<const PlanFile> toComplete(const RunOptions &options) const;
  bool warned = false, warnedOfMicrobatches = false;
  /// Opens the program's own data set at --data, once.
  void openData(const RunOptions &options);
  std::string opened = {};                          ///< --data of the last call
  std::shared_ptr<passes::SearchCache> searchCache; ///< of plan(); null: none
  /// The plan of a run: compiled on rank 0 and broadcast, or read from options.plan.
  std::shared_ptr<const PlanFile> planOf(const RunOptions &options, passes::Purpose purpose,
                                         const CheckpointInfo *trained);
  /// A model that has no program's name takes the checkpoint's name and options: then it reads the checkpoints of every
  /// program, and a resumed training writes what that program reads. Its tensors must be the checkpoint's in any case.
  void takeName(const CheckpointInfo &info);
  bool unnamed = model.name == Model().name;
  /// The training information of a checkpoint; throws if it belongs to another model. `what` is the caller, for
  /// messages.
  CheckpointInfo checkpointOf(const RunOptions &options, const char *what);
  /// Refuses a checkpoint that has parameters or buffers of another model: a plan without training has only what it
  /// reads.
  void refuseOthers(const RunOptions &options) const;
  /// Compiles and loads a checkpoint's model for prediction.
  std::unique_ptr<Predictor::Impl> load(const RunOptions &given);
};

GraphModule Trainer::Impl::traceRows(const ResolvedOptions &resolved, int64_t rows, int64_t evalRows) {
  if (resolved.purpose == passes::Purpose::Prediction)
    return tracePrediction(model, resolved.config, rows);
  TrainConfig config = resolved.config;
  if (resolved.purpose == passes::Purpose::Training)
    config.batch = resolved.batch;
  GraphModule graph = traceModel(model, config, rows, evalRows);
  if (!std::exchange(warned, true) && launchedRank() == 0) {
    std::vector<std::string> warnings = warningsOf(graph, fieldsOf(config.data));
    if (const std::string slow = warningOf(resolved.precision, passes::targetOf(resolved)); !slow.empty())
      warnings.push_back(slow);
    for (const std::string &warning : warnings)
      std::fputs(fmt::format("warning: {}\n", warning).c_str(), stderr);
  }
  return graph;
}

GraphModule Trainer::Impl::trace(const ResolvedOptions &resolved) {
  const int64_t microbatches = resolved.strategy.microbatches;
  return traceRows(resolved, resolved.batch / microbatches, resolved.evalBatch / microbatches);
}

std::shared_ptr<const PlanFile> Trainer::Impl::make(const ResolvedOptions &resolved, const RunOptions &options,
                                                    std::optional<GraphModule> traced, bool interruptible) {
  const auto began = std::chrono::steady_clock::now();
  std::optional<InterruptGuard> guard;
  if (interruptible && resolved.toSearch)
    guard.emplace();
  const auto stops = [&] {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - began;
    return (options.searchSeconds && passed.count() >= *options.searchSeconds) || (guard && guard->interrupted());
  };
  const int64_t microbatches = resolved.strategy.microbatches;
  const passes::Trace traceOf = [&](int64_t rows, int64_t evalRows) {
    const bool same = rows == resolved.batch / microbatches && evalRows == resolved.evalBatch / microbatches;
    if (std::optional<GraphModule> ready = same ? std::exchange(traced, std::nullopt) : std::nullopt)
      return std::move(*ready);
    return traceRows(resolved, rows, evalRows);
  };
  const passes::MadePlan made = passes::makePlan(traceOf, resolved, stops);
  warnOfMicrobatches(made.file->plan());
  if (!made.change.empty() && launchedRank() == 0)
    std::fputs((made.change + "\n").c_str(), stderr);
  return made.file;
}

void Trainer::Impl::openData(const RunOptions &options) {
  if (opened == options.data)
    return;
  openOwnData(config.data, options);
  opened = options.data;
}

void Trainer::Impl::warnOfMicrobatches(const plan::Plan &plan) {
  const std::string place = combinesSamples(plan, false);
  if (plan.microbatches() < 2 || place.empty() || launchedRank() != 0 || std::exchange(warnedOfMicrobatches, true))
    return;
  std::fputs(
      fmt::format("warning: {}: the result for a sample depends here on the rest of its microbatch, and so on the "
                  "number of microbatches, {}; perMicrobatch(...) around it says that this is meant\n",
                  place, plan.microbatches())
          .c_str(),
      stderr);
}

ResolvedOptions Trainer::Impl::resolve(RunOptions options, RunsOn place, passes::Purpose purpose,
                                       const CheckpointInfo *trained) const {
  TrainConfig own = config;
  if (purpose == passes::Purpose::Prediction) {
    own.evalBatch = 0;
    options.evalBatch.reset();
  }
  if (!options.like.empty())
    takeFromLike(model, options);
  ResolvedOptions resolved = resolveOptions(own, options, purpose, place);
  if (purpose == passes::Purpose::Evaluation) {
    resolved.config.batch = resolved.batch; // losses with Reduction::Sum weigh by that of training
    if (const int64_t rows = std::exchange(resolved.evalBatch, 0))
      resolved.batch = rows;
  }
  resolved.model = model.name;
  resolved.modelOptions = model.options;
  if (options.resume && trained && !options.threads &&
      trained->threads && // other threads would add up in another order
      trained->ranks == resolved.strategy.mesh.ranks() && !resolved.toSearch)
    resolved.threads = std::min(resolved.threads, static_cast<unsigned>(trained->threads));
  if (!options.resume && trained && std::holds_alternative<Pictures>(config.data)) {
    auto data = std::make_shared<plan::DataT>(dataOf(config.data));
    data->class_names = resolved.data->class_names;
    takeTransforms(trained->data, *data);
    resolved.data = std::move(data);
  }
  return resolved;
}

/// A launcher's processes are the devices if the options do not say how many there are.
static RunOptions onLaunchedRanks(RunOptions options) {
  if (options.mesh.empty() && options.devices == 0 && !isStrategyFile(options.strategy) && ranksAreProcesses() &&
      launchedRanks() > 1)
    options.devices = launchedRanks();
  return options;
}

std::shared_ptr<const PlanFile> Trainer::Impl::planOf(const RunOptions &options, passes::Purpose purpose,
                                                      const CheckpointInfo *trained) {
  std::shared_ptr<const PlanFile> plan;
  const double wait = options.timeout.value_or(meetingSeconds);
  checkOptions(programOptions(), options);
  checkBackend(options.backend);
  if (!options.plan.empty() && purpose != passes::Purpose::Prediction) {
    const auto load = [&] {
      auto file = PlanFile::load(options.plan);
      checkAgainstPlan(*file, model, options);
      return file;
    };
    plan = planForAllRanks(load, [&] { return valuesToAgree(model, options); }, wait);
  } else {
    const ResolvedOptions resolved = resolve(onLaunchedRanks(options), RunsOn::ThisMachine, purpose, trained);
    checkBackend(text(resolved.backend));                              // of --cluster
    if (resolved.backend == Target::Kind::Cpu && !ranksAreProcesses()) // all ranks use this machine's memory
      checkParametersFit(*model.root);
    // Every process traces, so that an error in the model ends all of them; only rank 0 compiles.
    GraphModule graph = trace(resolved);
    const auto given = [&] {
      ValuesToAgree values = valuesToAgree(model, options);
      values.emplace_back("model (its traced graph)", digestOf(graph.str()));
      return values;
    };
    const auto compile = [&] { return make(resolved, options, std::move(graph)); };
    plan = planForAllRanks(compile, given, wait);
  }
  releaseIdlePages();               // of the compiler
  warnOfMicrobatches(plan->plan()); // also of --plan
  return plan;
}

Trainer::Trainer(Model model, TrainConfig config) : impl(new Impl{std::move(model), std::move(config)}) {}
Trainer::~Trainer() = default;

void Trainer::train(const RunOptions &given) {
  RunOptions options = given;
  checkTraining(options);
  impl->openData(options);
  checkFiles(impl->config.data, options);
  options.resume = options.resume || (options.resumeIfAny && hasCheckpoint(options.checkpoint));
  std::optional<CheckpointInfo> resumed;
  if (options.resume && options.plan.empty()) {
    resumed = readCheckpointInfo(options.checkpoint, options.atStep);
    impl->takeName(*resumed);
    takeFromCheckpoint(*resumed, options);
  }
  const auto began = std::chrono::steady_clock::now();
  const auto plan = impl->planOf(options, passes::Purpose::Training, resumed ? &*resumed : nullptr);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
  options.data = dataPlace(impl->config.data, options);
  runTraining(plan, options, customData(impl->config.data), seconds.count());
}

void Trainer::Impl::takeName(const CheckpointInfo &info) {
  if (unnamed)
    model.name = info.model, model.options = info.options;
}

CheckpointInfo Trainer::Impl::checkpointOf(const RunOptions &options, const char *what) {
  if (options.checkpoint.empty())
    throw userError(fmt::format("--checkpoint: {} needs the folder of a checkpoint", what));
  CheckpointInfo info = readCheckpointInfo(options.checkpoint, options.atStep);
  takeName(info);
  if (info.model != model.name)
    throw userError(fmt::format("--checkpoint {}: the checkpoint is of model {}, but this program is {}",
                                options.checkpoint, info.model, model.name));
  return info;
}

Evaluation Trainer::evaluate(const RunOptions &given) {
  impl->openData(given);
  checkFiles(impl->config.data, given);
  const CheckpointInfo info = impl->checkpointOf(given, "evaluation");
  RunOptions options = given;
  options.data = dataPlace(impl->config.data, options); // report a missing data set before compiling
  if (options.plan.empty()) {
    if (givesBatch(options)) {
      options.evalBatch = options.evalBatch ? options.evalBatch : options.batch;
      options.microbatches = options.microbatches.value_or(1);
    }
    takeFromCheckpoint(info, options);
  }
  const auto plan = impl->planOf(options, passes::Purpose::Evaluation, &info);
  if (options.plan.empty())
    impl->refuseOthers(options);
  const EvalResult result = runEval(plan, options, customData(impl->config.data));
  return {result.loss, result.accuracy, result.samples};
}

std::unique_ptr<Predictor::Impl> Trainer::Impl::load(const RunOptions &given) {
  const CheckpointInfo info = checkpointOf(given, "a prediction");
  RunOptions options = given;
  if (!givesBatch(options) && info.batch > 0 && info.microbatches > 0)
    options.batch = info.batch / info.microbatches;
  options.microbatches = 1;
  takeFromCheckpoint(info, options);
  const auto plan = planOf(options, passes::Purpose::Prediction, &info);
  refuseOthers(options);
  return std::make_unique<Predictor::Impl>(plan, options);
}

void Trainer::Impl::refuseOthers(const RunOptions &options) const {
  std::set<std::string> known;
  for (const Parameter *parameter : model.root->parameters())
    known.insert(parameter->path());
  for (const Buffer *buffer : model.root->buffers())
    known.insert(buffer->path());
  refuseUnknownTensors(options.checkpoint, readManifest(options.checkpoint, options.atStep), known);
}

Predictor Trainer::predictor(const RunOptions &options) {
  impl->openData(options);
  return Predictor(impl->load(options));
}

void Trainer::predict(const RunOptions &given, const std::string &file) {
  impl->openData(given);
  RunOptions options = given;
  options.data = dataPlace(impl->config.data, given); // report a missing data set before compiling
  const auto loaded = impl->load(options);
  checkFiles(impl->config.data, options, outputFiles(file, loaded->prediction.outputs().size()));
  const OpenedData data = openPlanData(loaded->prediction.plan(), options, customData(impl->config.data),
                                       {.train = false, .labels = false});
  const std::string said = writePredictions(loaded->prediction, *data.source, Split::Eval, file, options.json);
  if (launchedRank() == 0)
    std::puts(said.c_str());
}

std::shared_ptr<const PlanFile> Trainer::Impl::toComplete(const RunOptions &options) const {
  if (options.like.empty() || !options.alternatives)
    return nullptr;
  for (const Option &option : programOptions())
    if (option.name != std::string_view("--like") && option.name != std::string_view("--alternatives") &&
        valueOf(option, options))
      return nullptr;
  auto file = PlanFile::load(options.like);
  return text(file->plan().options()) == model.options ? file : nullptr;
}

void Trainer::shareSearches() { impl->searchCache = passes::newSearchCache(); }

std::vector<uint8_t> Trainer::plan(const RunOptions &options) {
  impl->openData(options);
  ResolvedOptions resolved = impl->resolve(options, RunsOn::Anywhere);
  resolved.searchCache = impl->searchCache;
  if (options.alternatives && !resolved.searchCache)
    resolved.searchCache = passes::newSearchCache();
  std::shared_ptr<const PlanFile> file = impl->toComplete(options);
  if (file)
    file = passes::withAlternatives(
        file->plan(), [&](int64_t rows, int64_t evalRows) { return impl->traceRows(resolved, rows, evalRows); },
        resolved);
  else
    file = impl->make(resolved, options, std::nullopt, true);
  return {file->bytes().begin(), file->bytes().end()};
}

std::string Trainer::graph(const RunOptions &options) {
  impl->openData(options);
  return impl->trace(impl->resolve(options, RunsOn::Anywhere)).str();
}

CheckResult Trainer::check(const RunOptions &given) {
  if (ranksAreProcesses())
    throw userError("check: must run in one process, but a launcher started several");
  impl->openData(given);
  RunOptions options = given;
  if (options.steps == 0)
    throw userError("--steps 0: check compares at least one step");
  checkBackend(options.backend);
  std::shared_ptr<const PlanFile> plan;
  if (!options.plan.empty()) {
    plan = PlanFile::load(options.plan);
    checkAgainstPlan(*plan, impl->model, options);
    takeFromPlan(*plan, options);
  }
  ResolvedOptions resolved = impl->resolve(options, RunsOn::ThisMachine);
  if (!plan)
    plan = impl->make(resolved, options);
  if (resolved.toSearch) // what was found
    resolved.strategy = partitioner::Decisions::parse(text(plan->plan().strategy()), "the plan");
  options.data = dataPlace(impl->config.data, options);
  const OpenedData data = openPlanData(plan->plan(), options, customData(impl->config.data));
  const GraphModule step = passes::step(impl->trace(resolved), resolved);
  return checkPlanAgainstGraph(plan, step, *data.source, options.steps.value_or(1), resolved.threads);
}

} // namespace cleave
