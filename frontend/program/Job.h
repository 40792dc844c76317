// A job with every choice made: the program's defaults overridden by what the run options say. All mistakes in options
// that need no model are found here, so that they are reported at once.
#pragma once
#include "cleave/Trainer.h"
#include "partitioner/strategy/Strategy.h"

namespace cleave {

struct Job {
  TrainConfig config; ///< optimizer as overridden
  partitioner::Strategy strategy;
  int64_t batch = 0; ///< global, a multiple of strategy.microbatches
  uint64_t seed = 0;
  unsigned threads = 0; ///< per rank
  std::string backend = "cpu";
  std::string precision = "fp32";   ///< "bf16" or "fp16" where optLevel > 0
  int64_t optLevel = 0;             ///< O0 to O3
  double lossScale = 0;             ///< 0: none; < 0: dynamic; else its value
  bool channelsLast = false;        ///< convolutions on [n, h, w, c]
  std::string reduceDtype = "fp32"; ///< of gradients summed over dp: "fp32" or `precision`
};

/// Whether --strategy names a kind of split (data, model, pipeline, hybrid, auto) rather than a file.
bool isStrategyKind(const std::string &strategy);

/// Throws userError for a backend that cannot run here, naming what is missing. (Plans are compiled for any.)
void checkBackend(const std::string &backend);

/// Throws userError for a number that no run can have, naming the option and its range.
void checkNumbers(const RunOptions &options);

/// Throws userError naming the option, the rule and the value.
Job resolveJob(const TrainConfig &config, const RunOptions &options);

/// What plans and checkpoints store: {"kind","fields",...} and {"optimizer","lr"}, as JSON.
std::string dataJson(const Data &data);
std::string trainingJson(const Job &job);

/// The program's own data set, if that is what it has.
const Dataset *customData(const Data &data);
/// Where the data is; throws userError when it has to be said and was not, or does not exist.
std::string dataPlace(const Data &data, const RunOptions &options);

} // namespace cleave
