// Writes metrics as JSON lines.
#include "runtime/session/Metrics.h"
#include "runtime/base/Error.h"
#include "runtime/base/JsonText.h"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <iterator>
#include <unistd.h>

namespace cleave {

/// A JSON string with its quotes.
static std::string quoted(const std::string &text) { return jsonText(nlohmann::json(text)); }

std::string jsonNumber(double value) { return std::isfinite(value) ? fmt::format("{}", value) : "null"; }

constexpr std::string_view firstRecord = R"({"run":)";

std::string toJson(const RunRecord &run) {
  std::vector<std::string> axes;
  for (const auto &[name, size] : run.mesh.axes)
    axes.push_back(fmt::format(R"("{}":{})", name, size));
  return fmt::format(R"({{"run":{{"program":{},"mesh":{{{}}},"schedule":{},"microbatches":{},)"
                     R"("batch":{},"seed":{},"backend":{},"parameters":{},"plan_hash":{},"peak_bytes":[{}],)"
                     R"("compile_s":{}}}}})",
                     quoted(run.program), fmt::join(axes, ","), quoted(run.schedule), run.microbatches, run.batch,
                     run.seed, quoted(run.backend), run.parameters, quoted(run.planHash), fmt::join(run.peakBytes, ","),
                     jsonNumber(run.compileSeconds));
}

std::string toJson(const StepRecord &record) {
  const std::string accuracy = record.accuracy ? fmt::format(R"(,"accuracy":{})", jsonNumber(*record.accuracy)) : "";
  const std::string scale = record.lossScale ? fmt::format(R"(,"loss_scale":{},"skipped_steps":{})",
                                                           jsonNumber(*record.lossScale), record.skippedSteps)
                                             : "";
  const std::string host = record.hostMicroseconds && record.launchMicroseconds
                               ? fmt::format(R"(,"host_us":{},"launch_us":{})", jsonNumber(*record.hostMicroseconds),
                                             jsonNumber(*record.launchMicroseconds))
                               : "";
  return fmt::format(
      R"({{"step":{},"epoch":{},"loss":{},"lr":{},"samples_per_s":{},"step_ms":{},"data_wait_ms":{}{}{}{}}})",
      record.step, record.epoch, jsonNumber(record.loss), jsonNumber(record.lr), jsonNumber(record.samplesPerSecond),
      jsonNumber(record.milliseconds), jsonNumber(record.dataWaitMilliseconds), accuracy, scale, host);
}

std::string topJson(const std::string &name, const std::map<int64_t, double> &top) {
  std::string text;
  for (const auto &[k, part] : top)
    text += fmt::format(",\"{}{}\":{}", name, k, jsonNumber(part));
  return text;
}

std::string toJson(const EpochRecord &record) {
  return fmt::format(R"({{"epoch":{},"eval_loss":{},"eval_accuracy":{}{},"train_loss":{},"train_accuracy":{},)"
                     R"("seconds":{},"data_wait_s":{}{}}})",
                     record.epoch, jsonNumber(record.loss), jsonNumber(record.accuracy),
                     topJson("eval_accuracy_top", record.top), jsonNumber(record.trainLoss),
                     jsonNumber(record.trainAccuracy), jsonNumber(record.seconds), jsonNumber(record.dataWaitSeconds),
                     record.badFiles ? fmt::format(R"(,"bad_files":{})", *record.badFiles) : "");
}

/// Removes an incomplete last line: a killed run may have left half a record.
static void dropTornLine(const std::string &path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    return;
  std::ifstream in(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const size_t whole = text.rfind('\n') + 1; // npos + 1 is 0
  if (in && whole < text.size())
    std::filesystem::resize_file(path, whole, error);
}

void requireMetricsFile(const std::string &path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    return;
  std::string begin(firstRecord.size(), '\0');
  std::ifstream in(path, std::ios::binary);
  in.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  begin.resize(static_cast<size_t>(in.gcount()));
  if (!firstRecord.starts_with(begin))
    throw userError(
        fmt::format("--metrics {}: exists and does not begin with {}, so it is not a metrics file; name another "
                    "file, or remove it",
                    path, firstRecord));
}

std::string keepMetrics(const std::string &path) {
  std::error_code error;
  if (path.empty() || !std::filesystem::is_regular_file(path, error) || std::filesystem::file_size(path, error) == 0)
    return "";
  for (int64_t number = 1;; ++number) {
    const std::string name = fmt::format("{}.{}", path, number);
    int done = renameat2(AT_FDCWD, path.c_str(), AT_FDCWD, name.c_str(), RENAME_NOREPLACE);
    if (done != 0 && errno == EINVAL && !std::filesystem::exists(name, error)) // a file system without this flag
      done = rename(path.c_str(), name.c_str());
    if (done == 0)
      return name;
    const int code = errno;
    if (!std::filesystem::exists(name, error))
      throw userError(
          fmt::format("--metrics {}: the metrics of an earlier run cannot be renamed to {}: {}; name another "
                      "file, or --overwrite",
                      path, name, std::strerror(code)));
  }
}

MetricsFile::MetricsFile(const std::string &name, bool append) : path(name) {
  if (path.empty())
    return;
  if (append)
    dropTornLine(path);
  // O_NONBLOCK: opening a pipe without a reader would block.
  const int how = append ? O_APPEND : O_TRUNC;
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | how, 0666);
  if (fd >= 0 && fcntl(fd, F_SETFL, how & O_APPEND) == 0)
    file.reset(fdopen(fd, append ? "a" : "w"));
  if (!file) {
    const int code = errno;
    if (fd >= 0)
      close(fd);
    std::error_code ignored;
    const bool pipe = code == ENXIO && std::filesystem::is_fifo(path, ignored);
    throw userError(fmt::format("--metrics {}: cannot be written: {}", path,
                                pipe ? "the pipe has no reader" : std::strerror(code)));
  }
}

void MetricsFile::write(const std::string &line) {
  if (!file)
    return;
  if (fwrite(line.data(), 1, line.size(), file.get()) != line.size() || fputc('\n', file.get()) == EOF)
    throw environmentError(fmt::format("--metrics {}: cannot be written: {}", path, std::strerror(errno)));
}

void MetricsFile::flush() {
  if (file && fflush(file.get()) != 0)
    throw environmentError(fmt::format("--metrics {}: cannot be written: {}", path, std::strerror(errno)));
}

void MetricsFile::sync() {
  flush();
  if (file && fsync(fileno(file.get())) != 0 && errno != EINVAL && errno != EROFS) // EINVAL: a pipe
    throw environmentError(fmt::format("--metrics {}: cannot be written: {}", path, std::strerror(errno)));
}

} // namespace cleave
