// A training job or an evaluation from a plan: the loop that `PROGRAM train`, `PROGRAM eval` and `cleave-run` share.
#pragma once
#include "runtime/checkpoint/Manifest.h"
#include "runtime/data/DataSource.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/session/CheckpointInterval.h"
#include "runtime/session/RankJob.h"

#include <memory>
#include <optional>
#include <string>

namespace cleave {

struct TrainOptions {
  std::string dataDir;                     ///< folder, file or "synthetic"
  int64_t epochs = 0;                      ///< from the start of training; 0: not set
  std::optional<int64_t> steps = {};       ///< the same; at most one is set; neither: 1 epoch; 0 steps: the initial weights
  std::string metricsFile;                 ///< JSON lines; empty: none
  std::string checkpointDir;               ///< written after every epoch and at the end; empty: none
  CheckpointInterval checkpointEvery = {}; ///< also written within epochs
  bool resume = false;                     ///< continue from checkpointDir
  std::optional<int64_t> atStep = {}; ///< step of the checkpoint to continue from; nullopt: the last
  bool overwrite = false;             ///< start over even if checkpointDir holds a checkpoint
  int64_t keep = 2;                   ///< number of checkpoints to keep in checkpointDir
  unsigned threads = 0;               ///< per rank; 0: the plan's, otherwise cores / ranks on the host
  std::string deviceName = {};        ///< "cpu", "reference", "cuda"; empty: the plan's backend
  bool graph = true;                  ///< cuda: iterations as captured graphs; false: step by step
  bool deterministic = true;          ///< cuda: only library algorithms with bit-identical results
  std::string tuning = {};            ///< cuda: ExecutorOptions::tuning
  bool evalEachEpoch = true;
  bool keepGoing = false;     ///< continue if the loss is NaN or infinite; by default that ends training
  bool findNan = false;       ///< name the step that produced the first NaN; slow
  bool json = false;          ///< results as one JSON object
  bool quiet = false;         ///< no progress on standard error
  bool profile = false;       ///< print the slowest steps of rank 0 to standard error
  std::string traceFile = {}; ///< file for a trace of the last iterations (Trace.h); empty: none
  double compileSeconds = 0;  ///< for the metrics file
  double timeoutSeconds = 60; ///< timeout of waits for other ranks
  double graceSeconds = 0; ///< after an interrupt the process ends within this time; 0: when the checkpoint is written
};

struct EvalResult {
  double loss = 0, accuracy = 0; ///< accuracy is NaN if the loss does not count correct predictions
  int64_t samples = 0;
};

/// The state at the end of training.
struct TrainResult {
  int64_t steps = 0, epoch = 1; ///< steps since the start of training
  int64_t trained = 0;          ///< steps of this run
  double loss = 0;              ///< of the last step
  double seconds = 0, samplesPerSecond = 0;
  std::optional<EvalResult> eval; ///< of the last completed epoch
  bool interrupted = false;
};

/// Trains. Ranks are threads of this process, or this process is one rank under mpirun, srun or torchrun. `custom`: the
/// program's own data set, used unless dataDir is "synthetic". Rank 0 writes metrics, progress and results. Throws
/// userError for invalid options, environmentError for other failures (Error.h).
TrainResult runTraining(std::shared_ptr<const PlanFile> plan, const TrainOptions &options,
                        const DataSource *custom = nullptr);

struct EvalOptions {
  std::string dataDir, checkpointDir;
  unsigned threads = 0;
  std::string deviceName = {};
  std::string tuning = {};
  bool json = false;
  bool profile = false;       ///< as TrainOptions
  std::string traceFile = {}; ///< as TrainOptions
  double timeoutSeconds = 60;
  std::optional<int64_t> atStep = {}; ///< as TrainOptions
};

/// Evaluates the parameters of a checkpoint (without one: the initial parameters) on the whole evaluation split.
EvalResult runEval(std::shared_ptr<const PlanFile> plan, const EvalOptions &options,
                   const DataSource *custom = nullptr);

} // namespace cleave
