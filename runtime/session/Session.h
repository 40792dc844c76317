// A training job or an evaluation from a plan: the loop that `PROGRAM train`, `PROGRAM eval` and `cleave-run` share.
#pragma once
#include "cleave/RunOptions.h"
#include "runtime/checkpoint/Manifest.h"
#include "runtime/data/DataSource.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/session/RankJob.h"

#include <memory>
#include <optional>
#include <string>

namespace cleave {

struct EvalResult {
  double loss = 0, accuracy = 0; ///< accuracy is NaN if the loss does not count correct predictions
  int64_t samples = 0;
  TopAccuracies top = {};
  bool averages = false; ///< of the averages of the parameters (TrainConfig::ema)
};

/// The state at the end of training.
struct TrainResult {
  int64_t steps = 0, epoch = 1; ///< steps since the start of training
  int64_t trained = 0;          ///< steps of this run
  double loss = 0;              ///< of the last step
  double seconds = 0, samplesPerSecond = 0;
  std::optional<EvalResult> eval;  ///< of the last step, if an epoch ended with it
  std::optional<int64_t> badFiles; ///< training pictures that were skipped; nullopt: none are
  bool interrupted = false;
};

/// Trains. Ranks are threads of this process, or this process is one rank under mpirun, srun or torchrun. `custom`: the
/// program's own data set, used unless the data are "synthetic". `compileSeconds`: for the metrics file. Rank 0 writes
/// metrics, progress and results. Throws userError for invalid options, environmentError for other failures (Error.h).
TrainResult runTraining(std::shared_ptr<const PlanFile> plan, const RunOptions &options,
                        const DataSource *custom = nullptr, double compileSeconds = 0);

/// Throws userError for options of a training that contradict each other.
void checkTraining(const RunOptions &options);

/// Evaluates the parameters of a checkpoint (without one: the initial parameters) on the whole evaluation split. Of
/// several processes only rank 0 gets the values; the others get NaN.
EvalResult runEval(std::shared_ptr<const PlanFile> plan, const RunOptions &options, const DataSource *custom = nullptr);

} // namespace cleave
