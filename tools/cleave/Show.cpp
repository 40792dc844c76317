// cleave show: a plan as a page that people read, as JSON, or as the list of its steps.
#include "tools/Cli.h"
#include "tools/cleave/Commands.h"

#include <fmt/format.h>

namespace cleave::tool {

int show(int argc, char **argv) {
  CLI::App app{"Prints a plan: its mesh, stages, sharding, communication, memory and schedule.", "cleave show"};
  std::string file;
  bool json = false, steps = false;
  app.add_option("plan", file, "plan file")->required()->type_name("FILE.plan");
  app.add_flag("--json", json, "as one JSON object");
  app.add_flag("--steps", steps, "list every program's segments, steps and slots");
  if (!parseCommandLine(app, argc, argv))
    return 0;
  const auto plan = PlanFile::load(file);
  const PlanReport report = reportPlan(*plan);
  if (steps)
    fmt::print("{}", showSteps(plan->plan()));
  else if (json)
    fmt::print("{}\n", toJson(report));
  else
    fmt::print("{}", showPage(report));
  return 0;
}

} // namespace cleave::tool
