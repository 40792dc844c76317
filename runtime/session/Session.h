// A training job or an evaluation from a plan: the loop that `PROGRAM train`, `PROGRAM eval` and `cleave-run` share.
#pragma once
#include "runtime/checkpoint/Manifest.h"
#include "runtime/data/DataSource.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/session/RankJob.h"

#include <memory>
#include <optional>
#include <string>

namespace cleave {

struct TrainOptions {
  std::string dataDir;           ///< folder, file or "synthetic"
  int64_t epochs = 0, steps = 0; ///< from the start of training; at most one is given, neither: 1 epoch
  std::string metricsFile;       ///< JSON lines; empty: none
  std::string checkpointDir;     ///< written after every epoch and at the end; empty: none
  bool resume = false;           ///< continue from checkpointDir
  std::optional<int64_t> atStep = {}; ///< of the checkpoint to continue from; none: the last
  bool overwrite = false;        ///< train anew where checkpointDir holds a checkpoint
  int64_t keep = 2;              ///< checkpoints that checkpointDir keeps
  unsigned threads = 0;          ///< per rank; 0: the plan's, else cores / ranks on the host
  std::string deviceName = {};   ///< "cpu", "reference", "cuda"; empty: the plan's backend
  bool graph = true;             ///< cuda: iterations as captured graphs; off: step by step
  bool deterministic = true;     ///< cuda: only library algorithms that repeat bit for bit
  std::string tuning = {};       ///< cuda: ExecutorOptions::tuning
  bool evalEachEpoch = true;
  bool keepGoing = false;      ///< also where the loss is NaN or infinite; otherwise that ends training
  bool findNan = false;        ///< name the step that made the first NaN; slow
  bool json = false;           ///< results as one JSON object
  bool quiet = false;          ///< no progress on standard error
  bool profile = false;        ///< a table of the costliest steps of rank 0 on standard error
  std::string traceFile = {};  ///< the last iterations of rank 0 as a trace (Trace.h); empty: none
  double compileSeconds = 0;   ///< for the metrics file
  double timeoutSeconds = 60;  ///< how long a rank waits for another
};

struct EvalResult {
  double loss = 0, accuracy = 0; ///< accuracy is NaN for a loss that counts none
  int64_t samples = 0;
};

/// Where training ended.
struct TrainResult {
  int64_t steps = 0, epoch = 1; ///< steps since the start of training
  int64_t trained = 0;          ///< steps of this run
  double loss = 0;              ///< of the last step
  double seconds = 0, samplesPerSecond = 0;
  std::optional<EvalResult> eval; ///< of the last whole epoch
  bool interrupted = false;
};

/// Trains. Ranks are threads of this process, or this process is one rank under mpirun, srun or torchrun. `custom`: a
/// data set of the program's own, which then is used unless dataDir is "synthetic". Rank 0 writes metrics, progress and
/// results. Errors: userError for what the options break, environmentError for the rest (Error.h).
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

/// Evaluates the parameters of a checkpoint (without one: the initial ones) on the whole evaluation split.
EvalResult runEval(std::shared_ptr<const PlanFile> plan, const EvalOptions &options,
                   const DataSource *custom = nullptr);

} // namespace cleave
