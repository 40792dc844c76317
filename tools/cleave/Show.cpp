// cleave show: prints a plan as a page, as JSON, as a list of its steps, as its strategy, or as a graph.
#include "partitioner/strategy/Differences.h"
#include "runtime/options/CommandLine.h"
#include "runtime/plan/Text.h"
#include "runtime/plan/plan_generated.h"
#include "tools/cleave/Commands.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace cleave::tool {

static std::vector<partitioner::Decision> decisionsIn(const std::string &file, const plan::Plan &plan) {
  const std::string strategy = text(plan.strategy());
  return strategy.empty() ? std::vector<partitioner::Decision>()
                          : decisionsOf(partitioner::Decisions::parse(strategy, "the strategy of " + file));
}

/// Lists the decisions by who made them; those for single layers and tensors on lines of their own.
static std::string decisionsText(const std::vector<partitioner::Decision> &decisions) {
  constexpr std::pair<const char *, const char *> sources[] = {
      {"search", "found by the search"},       {"command line", "asked on the command line"},
      {"file", "asked by a strategy file"},    {"code", "marked in the code"},
      {"memory", "found, for lack of memory"}, {"default", "default"}};
  std::string out;
  for (const auto &[origin, title] : sources) {
    std::string whole, single;
    for (const partitioner::Decision &one : decisions)
      if (one.origin == origin && one.path.empty() && one.decision != "mark")
        whole += fmt::format("{}{} {}", whole.empty() ? "" : "; ", one.decision, one.value);
      else if (one.origin == origin)
        single += fmt::format("  {} of {}: {}\n", one.decision, one.path.empty() ? "the model" : one.path, one.value);
    if (!whole.empty() || !single.empty())
      out += fmt::format("{:<26} {}\n{}", title, whole, single);
  }
  return out.empty() ? out : "\ndecisions\n" + out;
}

/// The JSON of a summary, and the decisions.
static std::string withDecisions(const std::string &summary, const std::vector<partitioner::Decision> &decisions) {
  auto json = nlohmann::ordered_json::parse(summary), list = nlohmann::ordered_json::array();
  for (const partitioner::Decision &one : decisions) {
    nlohmann::ordered_json &entry = list.emplace_back(nlohmann::ordered_json{{"decision", one.decision}});
    if (!one.path.empty())
      entry["path"] = one.path;
    entry["value"] = one.value, entry["origin"] = one.origin;
  }
  json["decisions"] = std::move(list);
  return jsonText(json);
}

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
    fmt::print("{}\n", withDecisions(toJson(report), decisionsIn(file, plan->plan())));
  else
    fmt::print("{}{}", showPage(report), decisionsText(decisionsIn(file, plan->plan())));
  return 0;
}

} // namespace cleave::tool
