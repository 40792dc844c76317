// Lists the files of a command.
#include "frontend/program/Files.h"
#include "frontend/program/ResolvedOptions.h"
#include "runtime/base/FileRoles.h"
#include "runtime/checkpoint/Leftovers.h"
#include "runtime/data/DataSource.h"
#include "runtime/plan/plan_generated.h"

namespace cleave {

void checkFiles(const Data &data, const RunOptions &options, const std::vector<std::string> &outputs) {
  FileRoles files;
  files.reads("--plan", options.plan);
  if (!isStrategyKind(options.strategy))
    files.reads("--strategy", options.strategy);
  files.reads("--cluster", options.cluster);
  files.reads("the data file", dataFiles(dataOf(data).kind, options.data));
  files.reads("the checkpoint's file", checkpointPaths(options.checkpoint));
  files.writes("--metrics", options.metrics);
  files.writes("--trace", options.trace);
  for (const std::string &output : outputs)
    files.writes("the output", output == "-" ? "" : output);
  files.check();
}

} // namespace cleave
