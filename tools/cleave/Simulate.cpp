// cleave simulate: predicts times and memory without running anything.
#include "runtime/base/Error.h"
#include "runtime/base/FileRoles.h"
#include "runtime/options/CommandLine.h"
#include "tools/cleave/Commands.h"
#include "tools/cleave/SimulatePipeline.h"
#include "tools/cleave/SimulatePlan.h"

namespace cleave::tool {

int simulate(int argc, char **argv) {
  CLI::App app{"Predicts the times, the idle time and the memory of a plan, or of a pipeline schedule alone.",
               "cleave simulate"};
  std::string file, pipeline;
  SimulatePlanOptions options;
  auto *plan = app.add_option("plan", file, "plan file")->type_name("FILE.plan");
  app.add_option("--cluster", options.cluster, "the hardware (default: what the plan was made for)")
      ->type_name("FILE.toml")
      ->needs(plan);
  app.add_option("--pipeline", pipeline, "a schedule and the costs of its stages (docs/prediction.md)")
      ->type_name("SPEC.json")
      ->excludes(plan);
  app.add_flag("--json", options.json, "as one JSON object");
  app.add_option("--trace", options.trace, "write the timeline for ui.perfetto.dev")->type_name("FILE.json");
  app.add_option("--against", options.against, "set the trace of a run of the plan (cleave-run --trace) beside it")
      ->type_name("TRACE.json")
      ->needs(plan);
  if (!parseCommandLine(app, {argv + 1, argv + argc}))
    return 0;
  if (file.empty() && pipeline.empty())
    throw userError("what to simulate is missing: FILE.plan, or --pipeline SPEC.json");
  FileRoles files;
  files.reads("the plan", file);
  files.reads("--pipeline", pipeline);
  files.reads("--cluster", options.cluster);
  files.reads("--against", options.against);
  files.writes("--trace", options.trace);
  files.check();
  if (file.empty())
    simulatePipeline(pipeline, options.json, options.trace);
  else
    simulatePlan(file, options);
  return 0;
}

} // namespace cleave::tool
