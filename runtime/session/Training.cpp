// The training loop.
#include "runtime/base/Error.h"
#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/checkpoint/TrainingJson.h"
#include "runtime/comm/Communicator.h"
#include "runtime/options/Option.h"
#include "runtime/plan/Text.h"
#include "runtime/plan/check/Check.h"
#include "runtime/plan/plan_generated.h"
#include "runtime/plan/summary/PlanSummary.h"
#include "runtime/session/Agreement.h"
#include "runtime/session/CheckpointInterval.h"
#include "runtime/session/Interrupt.h"
#include "runtime/session/Launcher.h"
#include "runtime/session/LearningRate.h"
#include "runtime/session/Metrics.h"
#include "runtime/session/NonFiniteLoss.h"
#include "runtime/session/ProcessWorld.h"
#include "runtime/session/Progress.h"
#include "runtime/session/Results.h"
#include "runtime/session/Session.h"
#include "runtime/session/Setup.h"
#include "runtime/session/SkipAgreement.h"
#include "runtime/session/Trace.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <deque>
#include <fmt/format.h>
#include <numeric>

namespace cleave {
namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// State shared by the ranks of one process.
struct Training {
  std::shared_ptr<const PlanFile> file;
  const RunOptions &options;
  const DataSource &source;
  const PictureSource *pictures; ///< the source, if it is one of pictures
  SampleOrder order;
  plan::LearningRateT rate;
  std::optional<DataState> dataState; ///< if ranks compare it, or checkpoints have it
  std::optional<Manifest> resumed;
  int64_t samples, batch;
  bool runsAhead;                      ///< the device runs asynchronously: the host does not wait for iterations
  int64_t firstStep = 1, lastStep = 0; ///< of this run; no steps if last < first
  DataPosition begin;
  StopAgreement stop;
  double compileSeconds = 0;
  TrainResult result; ///< written by rank 0's thread

  Training(std::shared_ptr<const PlanFile> plan, const RunOptions &options, const OpenedData &data);
  int64_t lastOfEpochs() const;
  /// Throws userError if no step of this run can change a parameter because the schedule has ended. Warns if that is so
  /// for some steps, and if the training ends within the warm-up.
  void checkSchedule() const;
  /// Throws environmentError if the checkpoint that this run continues from has been replaced.
  void checkUnchanged() const;
  bool evaluates() const { return canEvaluate(file->plan()) && source.samples(Split::Eval) > 0; }
};

Training::Training(std::shared_ptr<const PlanFile> plan, const RunOptions &options, const OpenedData &data)
    : file(std::move(plan)), options(options), source(*data.source), pictures(data.pictures),
      order(source.samples(Split::Train), file->plan().seed(), source.shards(Split::Train)),
      rate(learningRateOf(file->plan())), samples(source.samples(Split::Train)), batch(file->plan().batch()),
      runsAhead(executorOptions(file->plan(), options, 0).device == "cuda") {
  if (batch > samples)
    throw userError(fmt::format("--batch {}: a batch must not be larger than the {} training samples", batch, samples));
  if (evaluates())
    requireWholeBatches(file->plan(), source.samples(Split::Eval));
  if (ranksAreProcesses() || !options.checkpoint.empty())
    dataState = DataState::of(source, file->plan().seed(), {});
  if (options.resume) {
    resumed = readManifest(options.checkpoint, options.atStep);
    checkResume(resumed->info, file->plan(), options.checkpoint);
    begin = resumedPosition(resumed->info, *dataState, options);
    firstStep = resumed->info.step + 1;
  }
  resolveEpochs(rate, samples / batch);
  begin.settle(samples, batch);
  lastStep = options.steps ? *options.steps : lastOfEpochs();
  if (rate.steps == 0 && resumed)
    rate.steps = parseTraining(resumed->info.training).rate->steps;
  if (rate.steps == 0)
    rate.steps = lastStep;
  checkSchedule();
}

void Training::checkSchedule() const {
  const bool speaks = !ranksAreProcesses() || launchedRank() == 0;
  if (endsInWarmup(rate, lastStep) && lastStep >= firstStep && speaks)
    std::fputs(fmt::format("warning: the learning rate warms up for {} steps, but the training ends after step {}, "
                           "at {:.3g} of {:.3g}\n",
                           rate.warmup, lastStep, rateAt(rate, lastStep, lastStep), rate.base)
                   .c_str(),
               stderr);
  const std::optional<int64_t> end = endOfSchedule(rate);
  if (!end || lastStep <= *end || lastStep < firstStep)
    return;
  const std::string text = fmt::format(
      "the learning-rate schedule ends with rate 0 after step {}, so steps {} to {} train nothing; to go on, "
      "give the schedule more steps in the program (CosineLr::steps = {}), or a last rate above 0 "
      "(CosineLr::min)",
      *end, std::max(firstStep, *end + 1), lastStep, lastStep);
  if (firstStep > *end)
    throw userError(text);
  if (speaks)
    std::fputs(fmt::format("warning: {}\n", text).c_str(), stderr);
}

/// The last step of the last epoch.
int64_t Training::lastOfEpochs() const {
  const int64_t epochs = options.epochs.value_or(1), perEpoch = samples / batch;
  if (begin.epoch > epochs)
    return firstStep - 1;
  int64_t whole = 0;
  if (__builtin_mul_overflow(epochs - begin.epoch, perEpoch, &whole) || whole >= mostSteps)
    throw userError(
        fmt::format("--epochs {}: of {} steps each: there must be fewer than 2^53 steps", epochs, perEpoch));
  return firstStep - 1 + (samples - begin.sample) / batch + whole;
}

void Training::checkUnchanged() const {
  if (!resumed)
    return;
  const Manifest now = readManifest(options.checkpoint, options.atStep);
  if (now.run != resumed->run || now.generation != resumed->generation)
    throw environmentError(fmt::format("--resume {}: another training wrote the checkpoint of step {} while this one "
                                       "began",
                                       options.checkpoint, now.info.step));
}

/// One rank's loop.
class RankLoop {
public:
  RankLoop(Training &shared, unsigned rank, RankEndpoint &world)
      : shared(shared), world(world), rank(rank),
        job(shared.file, rank, world, shared.source, shared.order,
            executorOptions(shared.file->plan(), shared.options, rank), workersOf(shared.options)),
        progress(shared.lastStep, rank != 0 || shared.options.quiet), guard(shared.file, rank, world, shared.options),
        timer(CheckpointInterval::parse(shared.options.checkpointEvery), world) {}

  void run();

private:
  void begin();
  void step(int64_t step, const DataPosition &at, const std::optional<DataPosition> &next);
  void report(bool all);
  void reportStep(const StepRecord &started, const LossSums &sums, double seconds);
  void endEpoch(int64_t number, int64_t step);
  void save(int64_t steps, const DataPosition &next);
  void warn(const std::string &text);
  void warnOfData();
  void countBadFiles();
  CheckpointInfo describe(int64_t steps, const DataPosition &next) const;

  Training &shared;
  RankEndpoint &world;
  unsigned rank;
  std::optional<CheckpointWriter> writer;
  RankJob job;
  Progress progress;
  MetricsFile metrics;
  /// Steps started but not yet reported, oldest first, with their iterations.
  std::deque<std::pair<uint64_t, StepRecord>> running;
  NonFiniteLoss guard;
  CheckpointTimer timer;
  int64_t saved = -1; ///< number of steps in the last checkpoint
  Clock::time_point began, last, flushed;
  bool warnedOfData = false;
  /// Of this run's steps of the epoch.
  struct EpochSums {
    double loss = 0, accuracy = 0, steps = 0, waitedBefore = 0;
    Clock::time_point began;
  } epoch;
};

void RankLoop::begin() {
  waitForSlowRanks(world, shared.options.waitSeconds());
  if (!shared.options.checkpoint.empty()) {
    CheckpointFolder folder = checkpointFolder(shared.options);
    folder.warn = [this](const std::string &warning) { warn(warning); };
    writer.emplace(shared.file, rank, world, std::move(folder));
    if (rank == 0)
      shared.checkUnchanged();
  }
  const SlotMemory memory = [this](unsigned slot) { return job.executor().persistent(slot); };
  if (shared.resumed)
    loadCheckpoint(shared.options.checkpoint, *shared.resumed, shared.file->plan(), rank, LoadWhat::Everything, memory);
  job.executor().writeBack();
  if (rank == 0) {
    RunRecord run = describeRun(*shared.file);
    run.compileSeconds = shared.compileSeconds;
    if (!shared.options.resume && !shared.options.overwrite)
      if (const std::string kept = keepMetrics(shared.options.metrics); !kept.empty())
        warn(fmt::format("the metrics of an earlier run are in {} now (--overwrite replaces them)", kept));
    metrics = MetricsFile(shared.options.metrics, shared.options.resume);
    metrics.write(toJson(run));
    metrics.flush();
    progress.line(fmt::format("{}: {}, global batch {}", run.program, ranksText(run.mesh), run.batch));
  }
  world.barrier();
  world.setTimeout(shared.options.waitSeconds());
}

void RankLoop::step(int64_t step, const DataPosition &at, const std::optional<DataPosition> &next) {
  const double lr = rateAt(shared.rate, step, shared.lastStep);
  const double waited = job.dataWait();
  const uint64_t iteration = job.train(step, float(lr), at, next);
  StepRecord record{step, at.epoch, 0, lr, 0, 0};
  record.dataWaitMilliseconds = 1e3 * (job.dataWait() - waited);
  if (const std::optional<HostTime> host = job.executor().hostTime()) {
    record.hostMicroseconds = host->start * 1e6;
    record.launchMicroseconds = host->launch * 1e6;
  }
  running.push_back({iteration, record});
  report(false);
}

/// Reports the steps that have completed, or waits for all. Waits for an asynchronous device only if several steps are
/// unreported. If another rank has the metrics, both ranks read them at the same steps.
void RankLoop::report(bool all) {
  const size_t most = shared.runsAhead ? 8 : 1;
  size_t count = 0;
  if (all || running.size() >= most)
    count = running.size();
  else if (!job.metricsTravel())
    while (count < running.size() && running[count].first <= job.executor().ended())
      ++count;
  std::vector<LossSums> sums;
  for (size_t i = 0; i < count; ++i)
    sums.push_back(job.metrics(running[i].first));
  const double seconds = since(last) / double(std::max<size_t>(1, count));
  for (size_t i = 0; i < count; ++i) {
    if (rank == 0)
      reportStep(running.front().second, sums[i], seconds);
    running.pop_front();
  }
  if (count > 0)
    last = Clock::now();
  guard.agree(job.executor(), saved);
}

void RankLoop::reportStep(const StepRecord &started, const LossSums &sums, double seconds) {
  StepRecord record = started;
  record.loss = sums.meanLoss();
  if (std::isfinite(sums.accuracy()))
    record.accuracy = sums.accuracy();
  epoch.loss += record.loss;
  epoch.accuracy += sums.accuracy();
  ++epoch.steps;
  record.samplesPerSecond = double(shared.batch) / seconds;
  record.milliseconds = seconds * 1e3;
  if (std::isfinite(sums.lossScale)) {
    record.lossScale = sums.lossScale;
    record.skippedSteps = int64_t(sums.skippedSteps);
  }
  if (!shared.options.metrics.empty()) {
    metrics.write(toJson(record));
    if (since(flushed) > 1) {
      metrics.flush();
      flushed = Clock::now();
    }
  }
  progress.step(record.step, record.loss, record.samplesPerSecond);
  shared.result.loss = record.loss;
  if (const std::string warning = guard.see(record.step, sums); !warning.empty())
    warn(warning);
  if (!guard.wrong().empty()) {
    metrics.flush();
    progress.finish();
  }
}

static EvalResult resultOf(const LossSums &sums, const PlanFile &file, const DataSource &source) {
  return {sums.meanLoss(), sums.accuracy(), source.samples(Split::Eval), sums.topAccuracies(),
          evaluatesAverages(file.plan())};
}

/// Throws userError that begins with `place` if an iteration read invalid indices.
static void requireIndices(const LossSums &sums, const std::string &place) {
  if (const std::string wrong = sums.invalidIndices(); !wrong.empty())
    throw userError(place + ": " + wrong);
}

void RankLoop::endEpoch(int64_t number, int64_t step) {
  if (!shared.evaluates())
    return;
  const double trained = since(epoch.began);
  const LossSums sums = job.evaluate(step);
  countBadFiles();
  if (rank != 0)
    return;
  requireIndices(sums, fmt::format("evaluation after step {}", step));
  shared.result.eval = resultOf(sums, *shared.file, shared.source);
  EpochRecord record{number, sums.meanLoss(), sums.accuracy()};
  record.trainLoss = epoch.loss / epoch.steps;
  record.trainAccuracy = epoch.accuracy / epoch.steps;
  record.seconds = trained;
  record.dataWaitSeconds = job.dataWait() - epoch.waitedBefore;
  record.top = sums.topAccuracies();
  record.badFiles = shared.result.badFiles;
  metrics.write(toJson(record));
  metrics.flush();
  progress.line(
      fmt::format("epoch {}  eval loss {:.4f}{}{}  training loss {:.4f}{}  {:.1f} s, of which waiting for data {:.1f}",
                  number, record.loss, accuracyText("  accuracy ", record.accuracy) + topText(record.top),
                  averagesText("  ", shared.result.eval->averages), record.trainLoss,
                  accuracyText("  accuracy ", record.trainAccuracy), record.seconds, record.dataWaitSeconds));
  last = Clock::now();
}

/// The training record of a checkpoint. It includes the schedule's length if the plan leaves that to the run, so that a
/// run resumed for more steps continues on the same curve.
static std::string storedTraining(const plan::Plan &plan, const plan::LearningRateT &rate) {
  plan::TrainingT training;
  if (plan.training())
    plan.training()->UnPackTo(&training);
  training.rate = std::make_unique<plan::LearningRateT>(rate);
  return trainingJson(training);
}

static std::string storedData(const plan::Plan &plan, const PictureSource *pictures) {
  plan::DataT data;
  if (plan.data())
    plan.data()->UnPackTo(&data);
  if (pictures)
    data.class_names = pictures->classes();
  return dataJson(data);
}

CheckpointInfo RankLoop::describe(int64_t steps, const DataPosition &next) const {
  const plan::Plan &plan = shared.file->plan();
  CheckpointInfo info{steps,
                      next.epoch,
                      next.sample,
                      plan.seed(),
                      shared.batch,
                      plan.microbatches(),
                      plan.eval_batch(),
                      text(plan.model()),
                      text(plan.options()),
                      storedTraining(plan, shared.rate),
                      storedData(plan, shared.pictures),
                      shared.file->hash(),
                      plan.ranks()->size(),
                      executorOptions(plan, shared.options, rank).threads};
  info.dataState = shared.dataState->json();
  return info;
}

void RankLoop::save(int64_t steps, const DataPosition &next) {
  if (!writer || steps == saved)
    return;
  const SlotMemory memory = [this](unsigned slot) { return job.executor().persistent(slot); };
  if (const std::string warning = guard.checkSaved(steps, saved, memory); !warning.empty()) {
    warn(warning);
    return;
  }
  waitForSlowRanks(world, shared.options.waitSeconds());
  metrics.sync(); // a checkpoint has no step whose metrics a later failure can lose
  writer->save(describe(steps, next), memory);
  world.setTimeout(shared.options.waitSeconds());
  saved = steps;
  InterruptGuard::saved(steps);
  last = Clock::now();
}

/// Prints a warning once, also with --quiet.
void RankLoop::warn(const std::string &text) {
  if (rank != 0)
    return;
  progress.finish();
  std::fputs(fmt::format("warning: {}\n", text).c_str(), stderr);
}

/// Says once that the steps wait for data, and what helps.
void RankLoop::warnOfData() {
  constexpr double share = 0.1, seconds = 10;
  const double passed = since(began);
  if (warnedOfData || passed < seconds || job.dataWait() < share * passed)
    return;
  warnedOfData = true;
  warn(fmt::format("steps have waited for data {:.0f}% of the time; more threads that read help if there are idle "
                   "processors: --workers, now {} a rank",
                   100 * job.dataWait() / passed, workersOf(shared.options)));
}

/// Collective over all ranks, which must have skipped the same: counts the training pictures that have been skipped so
/// far. Called before a checkpoint is written.
void RankLoop::countBadFiles() {
  if (shared.options.badFiles != "skip" || !shared.pictures)
    return;
  if (ranksAreProcesses())
    shared.result.badFiles = agreeOnSkipped(world, *shared.pictures);
  else if (rank == 0) // all ranks have one data set
    shared.result.badFiles = static_cast<int64_t>(shared.pictures->skipped(Split::Train).size());
}

void RankLoop::run() {
  begin();
  if (const int64_t dropped = shared.samples % shared.batch; dropped && rank == 0)
    progress.line(fmt::format("each epoch leaves out {} of {} samples, which do not fill a batch of {}", dropped,
                              shared.samples, shared.batch));
  began = last = flushed = epoch.began = Clock::now();
  DataPosition at = shared.begin;
  int64_t done = shared.firstStep - 1;
  if (shared.resumed)
    InterruptGuard::saved(saved = done);
  while (done < shared.lastStep && shared.stop.mayBegin(done + 1)) {
    if (rank == 0)
      shared.result.eval.reset(); // of earlier parameters
    DataPosition next{at.epoch, at.sample + shared.batch};
    next.settle(shared.samples, shared.batch);
    const bool epochEnds = next.epoch != at.epoch;
    const bool ahead = done + 1 < shared.lastStep && !(epochEnds && shared.evaluates());
    step(done + 1, at, ahead ? std::optional(next) : std::nullopt);
    ++done;
    const bool due = timer.due(done);
    if (epochEnds || due) {
      report(true);
      countBadFiles();
      save(done, next); // not after an evaluation, which may take longer than an interrupted program has time
      timer.restart();
      shared.stop.askSoon();
    }
    if (epochEnds) {
      endEpoch(at.epoch, done);
      epoch = {.waitedBefore = job.dataWait(), .began = Clock::now()};
    }
    if (rank == 0)
      warnOfData();
    at = next;
  }
  report(true);
  countBadFiles();
  save(done, at);
  job.executor().wait(); // waits even if no metrics were read
  if (writer)
    writer->close();
  const double seconds = since(began);
  if (rank == 0) {
    metrics.flush();
    progress.finish();
  }
  if (!shared.options.trace.empty())
    writeTrace(shared.options.trace, job.executor(), world);
  if (rank != 0)
    return;
  guard.end(saved);
  TrainResult &result = shared.result;
  result.steps = done;
  result.epoch = at.epoch;
  result.seconds = seconds;
  result.trained = done - shared.firstStep + 1;
  result.samplesPerSecond = result.seconds > 0 ? double(result.trained * shared.batch) / result.seconds : 0;
  if (shared.options.profile)
    printProfile(job.executor().profile(), result.seconds);
}

/// Checks that all processes run the same program on the same data.
void compareJobs(RankEndpoint &world, const DataState &data, double silence) {
  waitForSlowRanks(world, silence); // they may need different times to read their data
  ValuesToAgree values = describeProgram();
  for (auto &value : data.values())
    values.push_back(std::move(value));
  compareAmongRanks(world, values);
}

} // namespace

void checkTraining(const RunOptions &options) {
  if (options.steps && options.epochs)
    throw userError(fmt::format("--steps {} and --epochs {}: give one of them", *options.steps, *options.epochs));
  for (const auto &[option, given] :
       {std::pair("--resume", options.resume),
        {"--resume-if-any", options.resumeIfAny},
        {"--checkpoint-every", CheckpointInterval::parse(options.checkpointEvery).isSet()}})
    if (given && options.checkpoint.empty())
      throw userError(fmt::format("{}: needs --checkpoint DIR", option));
  if (options.resume && options.overwrite)
    throw userError("--resume continues from a checkpoint, --overwrite starts over: give only one of them");
  if (options.newData && !options.resume && !options.resumeIfAny)
    throw userError("--new-data: needs --resume or --resume-if-any");
  if (options.atStep && !options.resume)
    throw userError(fmt::format("--at-step {}: needs --resume", *options.atStep));
}

TrainResult runTraining(std::shared_ptr<const PlanFile> plan, const RunOptions &options, const DataSource *custom,
                        double compileSeconds) {
  checkOptions(sessionOptions(), options);
  checkTraining(options);
  if (!ranksAreProcesses() || launchedRank() == 0)
    requireMetricsFile(options.metrics);
  checkPlanOrThrow(plan->plan(), plan->name());
  requireTraining(plan->plan(), plan->name());
  const OpenedData data = openPlanData(plan->plan(), options, custom);
  Training training(plan, options, data);
  training.compileSeconds = compileSeconds;
  prepareCheckpointFolder(options);
  const unsigned ranks = plan->plan().ranks()->size();
  if (ranksAreProcesses()) {
    runPlanRanks(ranks,
                 [&](unsigned rank, RankEndpoint &world) { // an interrupt before the ranks have met ends the process
                   const InterruptGuard guard(options.grace.value_or(0));
                   std::vector<uint32_t> all(ranks);
                   std::iota(all.begin(), all.end(), 0);
                   compareJobs(world, *training.dataState, options.waitSeconds());
                   training.stop.among(world.group(all));
                   RankLoop(training, rank, world).run();
                 });
  } else {
    const InterruptGuard guard(options.grace.value_or(0));
    runPlanRanks(ranks, [&](unsigned rank, RankEndpoint &world) { RankLoop(training, rank, world).run(); });
  }
  const std::optional<int64_t> stopped = training.stop.stoppedAfter();
  training.result.interrupted = stopped.has_value();
  if (!ranksAreProcesses() || launchedRank() == 0)
    printResult(training.result, plan->plan(), options);
  if (stopped)
    throw environmentError(
        fmt::format("interrupted after step {}{}", *stopped,
                    options.checkpoint.empty() ? "" : ", checkpoint written to " + options.checkpoint));
  return training.result;
}

namespace {

/// Evaluates on one rank.
void evaluateRank(std::shared_ptr<const PlanFile> plan, const RunOptions &options, const DataSource &source,
                  SampleOrder &order, const std::optional<Manifest> &manifest, unsigned rank, RankEndpoint &world,
                  LossSums &result) {
  RankJob job(plan, rank, world, source, order, executorOptions(plan->plan(), options, rank), workersOf(options));
  waitForSlowRanks(world, options.waitSeconds());
  if (manifest)
    loadCheckpoint(options.checkpoint, *manifest, plan->plan(), rank,
                   canTrain(plan->plan()) ? LoadWhat::ParametersAndBuffers : LoadWhat::WhatIsRead,
                   [&](unsigned slot) { return job.executor().persistent(slot); });
  job.executor().writeBack();
  world.barrier();
  world.setTimeout(options.waitSeconds());
  const Clock::time_point began = Clock::now();
  const LossSums sums = job.evaluate(manifest ? manifest->info.step : 0);
  job.executor().wait();
  const double seconds = since(began);
  if (!options.trace.empty())
    writeTrace(options.trace, job.executor(), world);
  if (rank != 0)
    return;
  requireIndices(sums, "evaluation");
  result = sums;
  if (options.profile)
    printProfile(job.executor().profile(), seconds);
}

} // namespace

EvalResult runEval(std::shared_ptr<const PlanFile> plan, const RunOptions &options, const DataSource *custom) {
  checkPlanOrThrow(plan->plan(), plan->name());
  if (!canEvaluate(plan->plan()))
    throw userError(fmt::format("{}: the plan has no eval program", plan->name()));
  std::optional<Manifest> manifest;
  if (!options.checkpoint.empty())
    manifest = readManifest(options.checkpoint, options.atStep);
  const OpenedData data = openPlanData(plan->plan(), options, custom, {.train = false});
  requireWholeBatches(plan->plan(), data.source->samples(Split::Eval));
  SampleOrder order(data.source->samples(Split::Train), plan->plan().seed());
  LossSums sums; // of rank 0; other processes have none, and return NaN
  sums.terms.resize(1);
  runPlanRanks(plan->plan().ranks()->size(), [&](unsigned rank, RankEndpoint &world) {
    if (ranksAreProcesses())
      compareJobs(world, DataState::of(*data.source, plan->plan().seed(), {.train = false}), options.waitSeconds());
    evaluateRank(plan, options, *data.source, order, manifest, rank, world, sums);
  });
  const EvalResult result = resultOf(sums, *plan, *data.source);
  if (!ranksAreProcesses() || launchedRank() == 0)
    printResult(result, options.json);
  return result;
}

} // namespace cleave
