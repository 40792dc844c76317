// cleave simulate: predicts times and memory without running anything.
#include "tools/Cli.h"
#include "tools/cleave/Commands.h"
#include "tools/cleave/SimulatePipeline.h"

namespace cleave::tool {

int simulate(int argc, char **argv) {
  CLI::App app{"Predicts the times, the idle time and the memory of a pipeline schedule.", "cleave simulate"};
  std::string pipeline, trace;
  bool json = false;
  app.add_option("--pipeline", pipeline, "a schedule and the costs of its stages (docs/prediction.md)")
      ->required()
      ->type_name("SPEC.json");
  app.add_flag("--json", json, "as one JSON object");
  app.add_option("--trace", trace, "write the timeline for ui.perfetto.dev")->type_name("FILE.json");
  if (!parseCommandLine(app, argc, argv))
    return 0;
  simulatePipeline(pipeline, json, trace);
  return 0;
}

} // namespace cleave::tool
