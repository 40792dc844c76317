// cleave report: writes a page about a plan's predicted iteration, to be opened in a browser.
#include "runtime/base/AtomicFile.h"
#include "runtime/base/FileRoles.h"
#include "runtime/options/CommandLine.h"
#include "runtime/plan/plan_generated.h"
#include "tools/cleave/Commands.h"
#include "tools/cleave/ReportData.h"
#include "tools/cleave/SimulatePlan.h"

#include <algorithm>
#include <optional>

namespace cleave::tool {

int report(int argc, char **argv) {
  CLI::App app{"Writes one HTML file about a plan's predicted iteration: times, memory, mesh, modules, communication.",
               "cleave report"};
  std::string file, out, named, program;
  std::vector<std::string> changes;
  bool alternatives = false;
  app.add_option("plan", file, "plan file")->required()->type_name("FILE.plan");
  app.add_option("-o,--output", out, "the page to write")->required()->type_name("FILE.html");
  app.add_option("--cluster", named, "the hardware (default: what the plan was made for)")->type_name("FILE.toml");
  app.add_flag("--alternatives", alternatives, "other plans, too, also if the plan does not store them");
  app.add_option("--what-if", changes, "the plan with one thing changed, too, as in cleave explain; may be repeated")
      ->type_name("\"WHAT VALUE\"")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--program", program, "the program that made the plan (default: beside cleave, or on PATH)")
      ->type_name("PATH");
  if (!parseCommandLine(app, {argv + 1, argv + argc}))
    return 0;
  FileRoles files;
  files.reads("the plan", file);
  files.reads("--cluster", named);
  files.writes("-o", out);
  files.check();
  const auto loaded = loadSound(file);
  const plan::Plan &plan = loaded->plan();
  const partitioner::Cluster cluster = clusterOf(plan, file, named);
  const PlanSummary summary = summaryOf(*loaded);
  const auto simulation = partitioner::simulate(plan, cluster, {.timeline = true, .traffic = true});
  std::vector<OtherPlan> others = otherPlans(*loaded, simulation);
  std::optional<Replanner> planner;
  if ((alternatives && others.empty()) || !changes.empty())
    planner.emplace(file, *loaded, program);
  if (alternatives && others.empty())
    others = otherPlans(*planner->withAlternatives(), simulation);
  for (const std::string &words : changes) {
    const Answer made = answer(*planner, parseWhatIf(words, cluster));
    OtherPlan &other = others.emplace_back(OtherPlan{.decision = "what if", .value = words, .reason = made.problem});
    if (made.plan) {
      const PlanSummary there = summaryAndPrediction("the new plan", *made.plan);
      other.step = there.predicted->step;
      other.peakBytes = *std::ranges::max_element(there.peakBytes);
      if (made.searched)
        other.reason = "all else found anew: " + made.problem;
    }
  }
  const std::string page = reportPage(reportData({.plan = plan,
                                                  .summary = summary,
                                                  .cluster = cluster,
                                                  .simulation = simulation,
                                                  .alternatives = std::move(others)}));
  AtomicFile written(out);
  written.write(page.data(), page.size());
  written.commit();
  return 0;
}

} // namespace cleave::tool
