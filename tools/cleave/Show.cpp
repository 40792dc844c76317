// cleave show: prints a plan as a page, as JSON, as a list of its steps, as its strategy, or as a graph.
#include "runtime/options/CommandLine.h"
#include "runtime/plan/plan_generated.h"
#include "tools/cleave/Commands.h"

#include <fmt/format.h>

namespace cleave::tool {

int show(int argc, char **argv) {
  CLI::App app{"Prints a plan: its mesh, stages, sharding, communication, memory and schedule.", "cleave show"};
  std::string file;
  bool json = false, steps = false, strategy = false, dot = false, mermaid = false;
  app.add_option("plan", file, "plan file")->required()->type_name("FILE.plan");
  const std::vector<CLI::Option *> ways{
      app.add_flag("--json", json, "as one JSON object"),
      app.add_flag("--steps", steps, "list every program's segments, steps and slots"),
      app.add_flag("--strategy", strategy, "the strategy alone, as TOML for PROGRAM --strategy FILE"),
      app.add_flag("--dot", dot, "stages, messages and collectives as a graph for Graphviz"),
      app.add_flag("--mermaid", mermaid, "the same graph for Mermaid, which many viewers of Markdown draw"),
  };
  for (size_t i = 1; i < ways.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      ways[i]->excludes(ways[j]);
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
  if (dot || mermaid) {
    const PlanSummary report = summaryOf(*plan);
    fmt::print("{}", dot ? showDot(report) : showMermaid(report));
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
