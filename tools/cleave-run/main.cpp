// cleave-run: trains or evaluates from a plan file, using only the runtime.
#include "runtime/base/FileRoles.h"
#include "runtime/checkpoint/Leftovers.h"
#include "runtime/data/DataSource.h"
#include "runtime/options/CommandLine.h"
#include "runtime/session/GuardedMain.h"
#include "runtime/session/ProcessWorld.h"
#include "runtime/session/Session.h"
#include "runtime/session/SharedPlan.h"

#include <fmt/format.h>

using namespace cleave;

static int run(int argc, char **argv) {
  CLI::App app{"Trains a plan: one thread per rank, or one process per rank under mpirun or torchrun.", "cleave-run"};
  app.footer(
      "A plan holds machine code, which runs with your rights: run plans only from sources that you trust. Checks\n"
      "before it runs (cleave verify) find mistakes, not malice: of machine code they know what the plan declares.\n"
      "cleave show, diff and verify never load a plan's code.");
  RunOptions options;
  bool evaluate = false;
  app.add_option("plan", options.plan, "plan file")->required()->type_name("FILE.plan");
  addOptions(app, sessionOptions(), commands::cleaveRun, options);
  app.add_flag("--eval", evaluate, "evaluate the checkpoint instead of training");
  if (!parseCommandLine(app, {argv + 1, argv + argc}))
    return 0;

  if (evaluate && options.checkpoint.empty())
    throw userError("--eval: needs --checkpoint DIR, the checkpoint to evaluate");
  if (evaluate && (options.steps || options.epochs))
    throw userError("--eval: evaluates the whole evaluation split; --steps and --epochs are only for training");
  checkOptions(sessionOptions(), options);
  options.resume = options.resume || (options.resumeIfAny && hasCheckpoint(options.checkpoint));
  const auto values = [&] {
    ValuesToAgree values = valuesToAgree(sessionOptions(), options);
    values.emplace_back("--eval", evaluate ? "given" : "not given");
    return values;
  };
  const auto plan =
      planForAllRanks([&] { return PlanFile::load(options.plan); }, values, options.timeout.value_or(meetingSeconds));
  FileRoles files;
  files.reads("the plan", options.plan);
  files.reads("the data file", dataFiles(DataSpec::of(plan->plan()).kind, options.data));
  files.reads("the checkpoint's file", checkpointPaths(options.checkpoint));
  files.writes("--metrics", options.metrics);
  files.writes("--trace", options.trace);
  files.writes("--tuning", options.tuning == "off" ? "" : options.tuning);
  files.check();
  if (evaluate)
    runEval(plan, options);
  else
    runTraining(plan, options);
  return 0;
}

int main(int argc, char **argv) {
  return guardedMain([&] { return run(argc, argv); });
}
