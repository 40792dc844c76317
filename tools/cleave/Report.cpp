// cleave report: writes a page about a plan's predicted iteration, to be opened in a browser.
#include "runtime/base/AtomicFile.h"
#include "runtime/base/FileRoles.h"
#include "runtime/options/CommandLine.h"
#include "runtime/plan/plan_generated.h"
#include "tools/cleave/Commands.h"
#include "tools/cleave/ReportData.h"
#include "tools/cleave/SimulatePlan.h"

namespace cleave::tool {

int report(int argc, char **argv) {
  CLI::App app{"Writes one HTML file about a plan's predicted iteration: times, memory, mesh, modules, communication.",
               "cleave report"};
  std::string file, out, named;
  app.add_option("plan", file, "plan file")->required()->type_name("FILE.plan");
  app.add_option("-o,--output", out, "the page to write")->required()->type_name("FILE.html");
  app.add_option("--cluster", named, "the hardware (default: what the plan was made for)")->type_name("FILE.toml");
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
  const std::string page =
      reportPage(reportData({.plan = plan, .summary = summary, .cluster = cluster, .simulation = simulation}));
  AtomicFile written(out);
  written.write(page.data(), page.size());
  written.commit();
  return 0;
}

} // namespace cleave::tool
