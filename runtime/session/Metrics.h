// The metrics file: JSON lines, with numbers that read back exactly. The first is a "run" record, then one record per
// step and one per evaluated epoch.
#pragma once
#include "runtime/base/Mesh.h"

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace cleave {

struct StepRecord {
  int64_t step = 0, epoch = 0;
  double loss = 0, lr = 0, samplesPerSecond = 0, milliseconds = 0;
  std::optional<double> lossScale{}; ///< after the step; nullopt: no loss scaling
  int64_t skippedSteps = 0;          ///< since the start of training, with loss scaling
  /// Host time to enqueue the step without waits, and the part for the launch; nullopt: the device is the host.
  std::optional<double> hostMicroseconds{}, launchMicroseconds{};
  double dataWaitMilliseconds = 0;  ///< rank 0's step has waited for its data
  std::optional<double> accuracy{}; ///< nullopt: the loss does not count correct predictions
};

struct EpochRecord {
  int64_t epoch = 0;
  double loss = 0, accuracy = 0;
  double trainLoss = 0, trainAccuracy = 0; ///< over the epoch's steps of this run; the accuracy may be NaN
  double seconds = 0, dataWaitSeconds = 0; ///< of these steps
  std::map<int64_t, double> top{};         ///< by k: evaluated samples with a label among the k largest predictions
  std::optional<int64_t> badFiles{};       ///< training pictures skipped so far; nullopt: none are skipped
};

/// A description of the run: the first record of the metrics file.
struct RunRecord {
  std::string program;
  Mesh mesh;
  std::string schedule;
  int64_t microbatches = 1, batch = 1;
  uint64_t seed = 0;
  std::string backend;
  int64_t parameters = 0;
  std::string planHash;
  std::vector<uint64_t> peakBytes; ///< per rank
  double compileSeconds = 0;
};

/// One record as JSON, without a newline. Infinities and NaNs, which JSON does not support, become null.
std::string toJson(const RunRecord &run);
std::string toJson(const StepRecord &step);
std::string toJson(const EpochRecord &epoch);

/// ,"NAMEK":PART for each; empty for none.
std::string topJson(const std::string &name, const std::map<int64_t, double> &top);

/// A number as JSON: the shortest text that reads back exactly, null if not finite.
std::string jsonNumber(double value);

/// Throws userError if there is a file with other contents. Metrics are written in place, so that they can be read
/// while a run lasts; so the run must not begin in a file that holds something else.
void requireMetricsFile(const std::string &path);

/// Renames the metrics file of an earlier run to the first free one of FILE.1, FILE.2, ..., and returns that name;
/// empty if there is none. Throws userError if that fails.
std::string keepMetrics(const std::string &path);

/// Writes records to a file; does nothing if the path is empty.
class MetricsFile {
public:
  MetricsFile() = default;
  /// Throws userError that names a path that cannot be opened. `append`: for a resumed run.
  MetricsFile(const std::string &path, bool append);
  /// Throws environmentError that names the path if the disk is full.
  void write(const std::string &line);
  /// Flushes, so that readers see everything written so far.
  void flush();
  /// Flushes, and has the system store it: a crash of the machine loses nothing written so far.
  void sync();

private:
  std::string path;
  std::unique_ptr<FILE, int (*)(FILE *)> file{nullptr, fclose};
};

} // namespace cleave
