// Preparation before the ranks start.
#include "runtime/session/Setup.h"
#include "runtime/base/AtomicFile.h"
#include "runtime/base/Error.h"
#include "runtime/checkpoint/TrainingJson.h"
#include "runtime/data/DataFunction.h"
#include "runtime/data/UserData.h"
#include "runtime/plan/Backend.h"
#include "runtime/plan/Inputs.h"
#include "runtime/plan/Text.h"
#include "runtime/plan/plan_generated.h"
#include "runtime/plan/summary/PlanSummary.h"
#include "runtime/session/Launcher.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <unistd.h>

namespace cleave {

unsigned workersOf(const RunOptions &options) { return static_cast<unsigned>(options.workers.value_or(1)); }

/// Says that a model has outputs for classes that the data lack. `found` is 0 if the data do not name their classes.
static void warnOfClasses(int64_t found, int64_t model, const std::string &where) {
  if (found > 0 && found < model)
    std::fputs(fmt::format("warning: {} has {} classes, the model {}\n", where, found, model).c_str(), stderr);
}

OpenedData openPlanData(const plan::Plan &plan, const RunOptions &options, const DataSource *custom, DataNeeds needs) {
  OpenedData data;
  needs.skipBadFiles = options.badFiles == "skip";
  needs.fastDecode = options.decode == "fast";
  if (custom && options.data != "synthetic")
    data.owned = std::make_unique<UserData>(*custom);
  else {
    const int64_t batch = plan.batch(), evalBatch = evalBatchOf(plan);
    SyntheticSize size{std::max<int64_t>(1024, 8 * batch), std::max<int64_t>(256, evalBatch)};
    if (plan.eval_mixes()) // whole batches (requireWholeBatches)
      size.eval = (size.eval + evalBatch - 1) / evalBatch * evalBatch;
    data.owned = openData(DataSpec::of(plan), options.data, plan.seed(), size, needs);
  }
  data.source = data.owned.get();
  data.pictures = dynamic_cast<const PictureSource *>(data.source);
  if (data.pictures && !options.checkpoint.empty() && (options.resume || !needs.train))
    requireClasses(parseData(readCheckpointInfo(options.checkpoint, options.atStep).data).class_names,
                   "the checkpoint " + options.checkpoint, data.pictures->classes(), options.data);
  if (launchedRank() == 0 && data.pictures)
    warnOfClasses(static_cast<int64_t>(data.pictures->classes().size()), DataSpec::of(plan).classes("label"),
                  options.data);
  if (launchedRank() == 0)
    checkFunction(*data.source, plan.seed(), needs);
  return data;
}

ExecutorOptions executorOptions(const plan::Plan &plan, const RunOptions &options, unsigned rank) {
  ExecutorOptions out;
  if (!ranksAreProcesses()) // a launcher's variables, as those of a batch script, are not of the threads
    out.localRank = int(rank);
  out.threads = options.threads  ? static_cast<unsigned>(*options.threads)
                : plan.threads() ? plan.threads()
                                 : defaultThreads(plan.ranks()->size());
  out.device = !options.device.empty() ? options.device : text(backendOf(plan));
  out.graph = options.graph;
  out.deterministic = options.deterministic;
  out.tuning = options.tuning;
  out.timeoutSeconds = options.waitSeconds();
  out.findNonFinite = options.findNan;
  out.profile = options.profile || !options.trace.empty();
  return out;
}

void requireTraining(const plan::Plan &plan, const std::string &name) {
  if (!canTrain(plan))
    throw userError(fmt::format("{}: the plan has no train program", name));
}

void requireWholeBatches(const plan::Plan &plan, int64_t samples, bool predicts) {
  const int64_t batch = evalBatchOf(plan), pieces = plan.microbatches();
  const std::string place = combinesSamples(plan, true);
  if (place.empty() || samples % batch == 0)
    return;
  int64_t nearest = samples; // the nearest batch that divides the samples
  for (int64_t size = pieces; size <= samples; size += pieces)
    if (samples % size == 0 && std::abs(size - batch) < std::abs(nearest - batch))
      nearest = size;
  throw userError(fmt::format(
      "{}: in {}, the result for a sample depends here on the rest of its batch, so every batch must be full; a batch "
      "of {} does not divide the {} samples{} (the nearest that does: {})",
      place, predicts ? "predictions" : "evaluation", batch, samples, predicts ? "" : " of the evaluation split",
      predicts ? fmt::format("--batch {}", nearest) : fmt::format("--eval-batch {0}; of eval: --batch {0}", nearest)));
}

void checkResume(const CheckpointInfo &info, const plan::Plan &plan, const std::string &folder) {
  if (info.model != text(plan.model()))
    throw userError(fmt::format("--resume {}: the checkpoint is of model {}, the plan of {}", folder, info.model,
                                text(plan.model())));
  if (info.seed != plan.seed())
    throw userError(fmt::format("--resume {}: the checkpoint was trained with seed {}, the plan has seed {}", folder,
                                info.seed, plan.seed()));
}

DataPosition resumedPosition(const CheckpointInfo &info, const DataState &data, const RunOptions &options) {
  const DataState known = DataState::parse(info.dataState);
  const auto say = [](const std::string &line) {
    if (!ranksAreProcesses() || launchedRank() == 0)
      std::fputs((line + "\n").c_str(), stderr);
  };
  if (const std::string other = data.difference(known, Split::Eval); !other.empty())
    say(fmt::format("warning: {}; evaluations before and after it cannot be compared", other));
  DataPosition next{info.epoch, info.position};
  const std::string other = data.difference(known, Split::Train);
  if (other.empty())
    return next;
  if (!options.newData)
    throw userError(
        fmt::format("--resume {}: the checkpoint was trained on other data: {}; to go on with these, from the "
                    "beginning of an epoch, add --new-data",
                    options.checkpoint, other));
  if (next.sample > 0)
    next = {info.epoch + 1, 0};
  say(fmt::format("--new-data: {}; training goes on at the beginning of epoch {}", other, next.epoch));
  return next;
}

CheckpointFolder checkpointFolder(const RunOptions &options) {
  return {options.checkpoint, options.keep, options.overwrite, options.resume};
}

void prepareCheckpointFolder(const RunOptions &options) {
  const std::string &folder = options.checkpoint;
  if (folder.empty())
    return;
  makeFolders(folder, "--checkpoint");
  if (access(folder.c_str(), W_OK) != 0)
    throw userError(fmt::format("--checkpoint {}: cannot be written", folder));
  checkpointToFollow(checkpointFolder(options));
}

RunRecord describeRun(const PlanFile &file) {
  const plan::Plan &plan = file.plan();
  RunRecord run;
  run.program = text(plan.model());
  run.mesh = meshOf(plan);
  run.schedule = text(plan.schedule());
  run.microbatches = plan.microbatches();
  run.batch = plan.batch();
  run.seed = plan.seed();
  run.backend = text(plan.backend());
  run.parameters = static_cast<int64_t>(countParameters(plan));
  run.planHash = file.hash();
  for (const plan::Rank *rank : *plan.ranks())
    run.peakBytes.push_back(plan.programs()->Get(rank->program())->peak_bytes());
  return run;
}

} // namespace cleave
