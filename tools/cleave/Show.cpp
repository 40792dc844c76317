// cleave show: prints a plan as a page, as JSON, as a list of its steps, or as its strategy.
#include "runtime/options/CommandLine.h"
#include "runtime/plan/plan_generated.h"
#include "tools/cleave/Commands.h"

#include <fmt/format.h>

namespace cleave::tool {

int show(int argc, char **argv) {
  CLI::App app{"Prints a plan: its mesh, stages, sharding, communication, memory and schedule.", "cleave show"};
  std::string file;
  bool json = false, steps = false, strategy = false;
  app.add_option("plan", file, "plan file")->required()->type_name("FILE.plan");
  auto *asJson = app.add_flag("--json", json, "as one JSON object");
  auto *asSteps = app.add_flag("--steps", steps, "list every program's segments, steps and slots");
  auto *asStrategy = app.add_flag("--strategy", strategy, "the strategy alone, as TOML for PROGRAM --strategy FILE");
  asJson->excludes(asSteps)->excludes(asStrategy);
  asSteps->excludes(asStrategy);
  if (!parseCommandLine(app, {argv + 1, argv + argc}))
    return 0;
  const auto plan = loadSound(file);
  if (strategy) {
    fmt::print("{}", plan->plan().strategy() ? plan->plan().strategy()->str() : "");
    return 0;
  }
  if (steps) {
    fmt::print("{}", showSteps(plan->plan()));
    return 0;
  }
  const PlanSummary report = summaryAndPrediction(file, *plan);
  if (json)
    fmt::print("{}\n", toJson(report));
  else
    fmt::print("{}", showPage(report));
  return 0;
}

} // namespace cleave::tool
