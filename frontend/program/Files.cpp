// Lists the files of a command, and finds its data.
#include "frontend/program/Files.h"
#include "frontend/program/PlanDescriptions.h"
#include "frontend/program/ResolvedOptions.h"
#include "runtime/base/Error.h"
#include "runtime/base/FileRoles.h"
#include "runtime/base/UserCode.h"
#include "runtime/checkpoint/Leftovers.h"
#include "runtime/data/DataSource.h"
#include "runtime/plan/plan_generated.h"

#include <filesystem>
#include <fmt/format.h>

namespace cleave {

void checkFiles(const Data &data, const RunOptions &options, const std::vector<std::string> &outputs) {
  FileRoles files;
  files.reads("--plan", options.plan);
  files.reads("--like", options.like);
  if (!isStrategyKind(options.strategy))
    files.reads("--strategy", options.strategy);
  files.reads("--cluster", options.cluster);
  files.reads("the data file", dataFiles(customData(data) ? plan::DataKind::Custom : dataOf(data).kind, options.data));
  files.reads("the checkpoint's file", checkpointPaths(options.checkpoint));
  files.writes("--metrics", options.metrics);
  files.writes("--trace", options.trace);
  files.writes("--tuning", options.tuning == "off" ? "" : options.tuning);
  for (const std::string &output : outputs)
    files.writes("the output", output == "-" ? "" : output);
  files.check();
}

const Dataset *customData(const Data &data) {
  const auto *own = std::get_if<std::shared_ptr<Dataset>>(&data);
  return own ? own->get() : nullptr;
}

static void requirePlace(const std::string &data) {
  std::error_code error;
  if (!std::filesystem::exists(data, error))
    throw userError(fmt::format("--data {}: {}", data, error ? error.message() : "no such file or folder"));
}

void openOwnData(const Data &data, const RunOptions &options) {
  const auto *own = std::get_if<std::shared_ptr<Dataset>>(&data);
  if (!own || options.data.empty() || options.data == "synthetic")
    return;
  requirePlace(options.data);
  callUser([&] { return fmt::format("--data {}", options.data); }, [&] { (*own)->open(options.data); });
}

std::string dataPlace(const Data &data, const RunOptions &options) {
  if (options.data == "synthetic" || (options.data.empty() && customData(data)))
    return options.data;
  if (std::holds_alternative<SyntheticImages>(data)) {
    if (!options.data.empty())
      throw userError(fmt::format("--data {}: the program's data is synthetic", options.data));
    return "synthetic";
  }
  if (options.data.empty())
    throw userError("--data: needs the folder or file of the data set, or \"synthetic\"");
  requirePlace(options.data);
  return options.data;
}

} // namespace cleave
