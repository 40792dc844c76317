// cleave verify: checks a plan and reports what was verified.
#include "runtime/base/Counted.h"
#include "runtime/base/Error.h"
#include "runtime/base/JsonText.h"
#include "runtime/base/StandardStreams.h"
#include "runtime/options/CommandLine.h"
#include "runtime/plan/check/Check.h"
#include "tools/cleave/Commands.h"

#include <algorithm>
#include <fmt/format.h>

namespace cleave::tool {

std::shared_ptr<const PlanFile> loadSound(const std::string &file) {
  auto plan = PlanFile::load(file);
  checkPlanStructureOrThrow(plan->plan(), file);
  return plan;
}

static uint64_t total(const std::vector<PlanSummary::Collective> &list) {
  uint64_t count = 0;
  for (const auto &entry : list)
    count += entry.count;
  return count;
}
static uint64_t total(const std::vector<PlanSummary::Message> &list) {
  uint64_t count = 0;
  for (const auto &entry : list)
    count += entry.count;
  return count;
}

static void printProof(const PlanSummary &report, const std::string &file) {
  const auto peak = std::max_element(report.peakBytes.begin(), report.peakBytes.end());
  fmt::print("{}: good ({})\n", file, report.hash.substr(0, 6));
  fmt::print("  {}, {}: {}, {} an iteration\n", counted(report.ranks, "rank"), counted(report.programs, "program"),
             counted(report.actions, "action"), counted(report.steps, "step"));
  fmt::print("  one rank of each stage: {} collectives, {} messages sent\n", total(report.collectives),
             total(report.messages));
  fmt::print("  every index is in range, every slice inside its slot, every slot inside its arena\n");
  fmt::print("  no step reads memory that was never written or that another slot has overwritten\n");
  fmt::print("  all members of a group issue the same collectives in the same order\n");
  fmt::print("  every send has its receive, and there is no deadlock\n");
  fmt::print("  no partial value is read as a whole, and none is summed twice\n");
  fmt::print("  every kernel call matches its declaration\n");
  fmt::print("  every sum starts at 0, every parameter is updated completely from its own gradient\n");
  if (peak != report.peakBytes.end())
    fmt::print("  peak memory {} MiB on rank {}\n", mebibytes(double(*peak)), peak - report.peakBytes.begin());
}

int verify(int argc, char **argv) {
  CLI::App app{"Checks a plan before it runs.", "cleave verify"};
  std::string file;
  double memory = 0;
  bool json = false;
  app.add_option("plan", file, "plan file")->required()->type_name("FILE.plan");
  app.add_option("--memory", memory, "MiB a rank has")->check(wholeNumberCheck(1, int64_t{1} << 40));
  app.add_flag("--json", json, "as one JSON object");
  if (!parseCommandLine(app, {argv + 1, argv + argc}))
    return 0;
  const auto plan = PlanFile::load(file);
  CheckOptions options;
  options.memoryBytes = uint64_t(memory * 1048576);
  const std::vector<std::string> findings = checkPlan(plan->plan(), options);
  if (json) {
    const nlohmann::ordered_json out{{"good", findings.empty()}, {"findings", findings}, {"plan_hash", plan->hash()}};
    fmt::print("{}\n", jsonText(out));
  } else if (findings.empty()) {
    printProof(summaryOf(*plan), file);
  }
  if (findings.empty())
    return 0;
  std::string text;
  for (const std::string &finding : findings)
    text += fmt::format("{}: {}\n", file, finding);
  text += fmt::format("error: {}: {} finding{}\n", file, findings.size(), findings.size() == 1 ? "" : "s");
  printOnStandardError(text);
  return int(Status::Environment);
}

} // namespace cleave::tool
