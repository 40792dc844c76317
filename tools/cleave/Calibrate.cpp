// cleave calibrate: fits the constants of a cluster to traces of runs, and writes the cluster file.
#include "partitioner/simulate/Calibrate.h"
#include "runtime/base/AtomicFile.h"
#include "runtime/base/Counted.h"
#include "runtime/base/Error.h"
#include "runtime/base/FileRoles.h"
#include "runtime/base/JsonText.h"
#include "runtime/options/CommandLine.h"
#include "runtime/plan/plan_generated.h"
#include "tools/cleave/Commands.h"
#include "tools/cleave/SimulatePlan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::tool {

using namespace partitioner;

namespace {

struct CalibrateOptions {
  std::vector<std::string> files;
  std::string cluster, output;
  bool json = false;
};

/// A plan and the traces of its runs.
struct RunFiles {
  std::string plan;
  std::vector<std::string> traces;
};

/// A file that ends in .plan begins a group; the traces after it are of its runs.
std::vector<RunFiles> groupsOf(const std::vector<std::string> &files) {
  std::vector<RunFiles> groups;
  for (const std::string &file : files)
    if (file.ends_with(".plan"))
      groups.push_back({file, {}});
    else if (groups.empty())
      throw userError(fmt::format("{}: a trace must follow its plan, whose name ends in .plan", file));
    else
      groups.back().traces.push_back(file);
  for (const RunFiles &group : groups)
    if (group.traces.empty())
      throw userError(fmt::format("{}: a plan needs at least one trace of a run after it (--trace)", group.plan));
  return groups;
}

/// The cluster named, or the one for which all plans were made.
Cluster commonCluster(const std::vector<std::shared_ptr<const PlanFile>> &plans, const std::vector<RunFiles> &groups,
                      const std::string &named) {
  const Cluster first = clusterOf(plans[0]->plan(), groups[0].plan, named);
  for (size_t i = 1; i < plans.size() && named.empty(); ++i) {
    Cluster other = clusterOf(plans[i]->plan(), groups[i].plan, named);
    other.name = first.name; // a cluster without a name is named after its file
    if (other != first)
      throw userError(fmt::format("{} was made for another cluster than {}; name one with --cluster FILE.toml",
                                  groups[i].plan, groups[0].plan));
  }
  return first;
}

Calibration calibrationOf(const std::vector<RunFiles> &groups, const std::string &cluster) {
  std::vector<std::shared_ptr<const PlanFile>> plans;
  for (const RunFiles &group : groups)
    plans.push_back(loadSound(group.plan));
  const Cluster before = commonCluster(plans, groups, cluster);
  std::vector<PlanRuns> runs;
  for (size_t i = 0; i < groups.size(); ++i) {
    PlanRuns &one = runs.emplace_back(PlanRuns{&plans[i]->plan(), {}});
    for (const std::string &trace : groups[i].traces)
      one.runs.push_back(loadTrace(trace, *plans[i]));
  }
  return calibrate(before, runs);
}

void printJson(const Calibration &found, const std::vector<RunFiles> &groups, const std::string &output) {
  using Json = nlohmann::ordered_json;
  Json constants = Json::array(), plans = Json::array();
  for (const CalibratedConstant &one : found.constants) {
    Json row{{"name", one.name}, {"before", one.before}, {"after", one.after}, {"determined", one.determined}};
    if (one.determined)
      row.update({{"relative_error", one.error},
                  {"steps", one.steps},
                  {"miss_before", one.missBefore},
                  {"miss_after", one.missAfter}});
    constants.push_back(std::move(row));
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    const CalibratedPlan &one = found.plans[i];
    plans.push_back({{"plan", groups[i].plan},
                     {"traces", groups[i].traces},
                     {"iterations", one.iterations},
                     {"steps", one.steps},
                     {"measured_ms", one.measured * 1e3},
                     {"predicted_before_ms", one.before * 1e3},
                     {"predicted_after_ms", one.after * 1e3}});
  }
  fmt::print("{}\n", jsonText(Json{{"output", output},
                                   {"cluster", found.cluster.name},
                                   {"steps", found.steps},
                                   {"miss_before", found.missBefore},
                                   {"miss_after", found.missAfter},
                                   {"constants", std::move(constants)},
                                   {"plans", std::move(plans)}}));
}

void printPage(const Calibration &found, const std::vector<RunFiles> &groups, const std::string &output) {
  fmt::print("{}: fitted to {} of {}; median error of a step's time {:.1f}%, before {:.1f}%\n\n", output,
             counted(found.steps, "step"), counted(groups.size(), "plan"), 100 * found.missAfter,
             100 * found.missBefore);
  fmt::print("{:<46} {:>10} {:>10} {:>7} {:>6}   {:>16}\n", "constant", "before", "after", "+-", "steps",
             "median error of them");
  std::vector<std::string> others;
  for (const CalibratedConstant &one : found.constants)
    if (one.determined)
      fmt::print("{:<46} {:>10.4g} {:>10.4g} {:>6.1f}% {:>6}   {:>7.1f}% -> {:.1f}%\n", one.name, one.before, one.after,
                 100 * one.error, one.steps, 100 * one.missBefore, 100 * one.missAfter);
    else
      others.push_back(one.name);
  if (!others.empty()) {
    fmt::print("\nnot determined, or only together with those above; they keep their values:\n");
    for (const std::string &name : others)
      fmt::print("  {}\n", name);
  }
  fmt::print("\n{:<46} {:>10} {:>10} {:>10} {:>11}\n", "ms of an iteration", "measured", "before", "after",
             "iterations");
  for (size_t i = 0; i < groups.size(); ++i)
    fmt::print("{:<46} {:>10.3f} {:>10.3f} {:>10.3f} {:>11}\n", groups[i].plan, found.plans[i].measured * 1e3,
               found.plans[i].before * 1e3, found.plans[i].after * 1e3, found.plans[i].iterations);
}

} // namespace

int calibrate(int argc, char **argv) {
  CLI::App app{"Fits the constants of a cluster to traces of runs, so that predictions come closer to this hardware.",
               "cleave calibrate"};
  CalibrateOptions options;
  app.add_option("files", options.files, "a plan and the traces of its runs (--trace), once or several times")
      ->required()
      ->type_name("FILE.plan TRACE.json...");
  app.add_option("-o,--output", options.output, "the cluster file to write")->required()->type_name("CLUSTER.toml");
  app.add_option("--cluster", options.cluster, "where the fit begins (default: what the plans were made for)")
      ->type_name("FILE.toml");
  app.add_flag("--json", options.json, "as one JSON object");
  if (!parseCommandLine(app, {argv + 1, argv + argc}))
    return 0;
  const std::vector<RunFiles> groups = groupsOf(options.files);
  FileRoles files;
  for (const RunFiles &group : groups) {
    files.reads("a plan", group.plan);
    files.reads("a trace", group.traces);
  }
  files.reads("--cluster", options.cluster);
  files.writes("--output", options.output);
  files.check();
  AtomicFile file(options.output); // an error in its name is reported before the fit
  const Calibration found = calibrationOf(groups, options.cluster);
  const std::string text = found.cluster.toToml();
  file.write(text.data(), text.size());
  file.commit();
  options.json ? printJson(found, groups, options.output) : printPage(found, groups, options.output);
  return 0;
}

} // namespace cleave::tool
