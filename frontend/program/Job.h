// A job with all options resolved: the program's defaults, overridden by RunOptions. Reports every invalid option that
// can be detected without the model.
#pragma once
#include "cleave/Trainer.h"
#include "partitioner/strategy/Strategy.h"

namespace cleave {

struct Job {
  TrainConfig config; ///< with the optimizer overridden by options
  partitioner::Strategy strategy;
  int64_t batch = 0; ///< global, a multiple of strategy.microbatches
  uint64_t seed = 0;
  unsigned threads = 0; ///< per rank
  std::string backend = "cpu";
  std::string precision = "fp32";   ///< "bf16" or "fp16" if optLevel > 0
  int64_t optLevel = 0;             ///< O0 to O3
  double lossScale = 0;             ///< 0: none; < 0: dynamic; otherwise the scale
  bool channelsLast = false;        ///< convolutions use [n, h, w, c]
  std::string reduceDtype = "fp32"; ///< for gradient reductions over dp: "fp32" or `precision`
};

/// Whether --strategy names a kind of split (data, model, pipeline, hybrid, auto) rather than a file.
bool isStrategyKind(const std::string &strategy);

/// Throws a user error that names what is missing if the backend cannot run here. (Plans can be compiled for any
/// backend.)
void checkBackend(const std::string &backend);

/// Throws a user error that names the option and its range if a number is out of range.
void checkNumbers(const RunOptions &options);

/// Throws a user error that names the option, the rule and the value.
Job resolveJob(const TrainConfig &config, const RunOptions &options);

/// What plans and checkpoints store: {"kind","fields",...} and {"optimizer","lr"}, as JSON.
std::string dataJson(const Data &data);
std::string trainingJson(const Job &job);

/// The program's own data set, or null.
const Dataset *customData(const Data &data);
/// The location of the data; throws userError if it is required and missing, or does not exist.
std::string dataPlace(const Data &data, const RunOptions &options);

} // namespace cleave
