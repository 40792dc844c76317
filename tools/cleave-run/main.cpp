// cleave-run: trains or evaluates from a plan file, using only the runtime.
#include "runtime/base/FileRoles.h"
#include "runtime/checkpoint/Leftovers.h"
#include "runtime/data/DataSource.h"
#include "runtime/session/Launch.h"
#include "runtime/session/Session.h"
#include "tools/Cli.h"

#include <fmt/format.h>

using namespace cleave;

/// The values that must be equal on all ranks of a job.
static GivenValues givenValues(const std::string &plan, const TrainOptions &options, bool evaluate) {
  const auto flag = [](bool set) { return set ? "given" : "not given"; };
  return {{"plan", digestOfFile(plan)},
          {"--eval", flag(evaluate)},
          {"--steps", fmt::format("{}", options.steps.value_or(-1))},
          {"--epochs", fmt::format("{}", options.epochs)},
          {"--checkpoint", flag(!options.checkpointDir.empty())},
          {"--checkpoint-every",
           fmt::format("{} steps, {} s", options.checkpointEvery.steps, options.checkpointEvery.seconds)},
          {"--resume", flag(options.resume)},
          {"--at-step", fmt::format("{}", options.atStep.value_or(-1))},
          {"--overwrite", flag(options.overwrite)},
          {"--keep", fmt::format("{}", options.keep)},
          {"--device", options.deviceName},
          {"--no-graph", flag(!options.graph)},
          {"--no-deterministic", flag(!options.deterministic)},
          {"--keep-going", flag(options.keepGoing)},
          {"--find-nan", flag(options.findNan)},
          {"--trace", flag(!options.traceFile.empty())}};
}

static int run(int argc, char **argv) {
  CLI::App app{"Trains a plan: one thread per rank, or one process per rank under mpirun or torchrun.", "cleave-run"};
  app.footer(
      "A plan holds machine code, which runs with your rights: run plans only from sources that you trust. Checks\n"
      "before it runs (cleave verify) find mistakes, not malice: of machine code they know what the plan declares.\n"
      "cleave show, diff and verify never load a plan's code.");
  std::string file;
  TrainOptions options;
  bool evaluate = false, resumeIfAny = false;
  std::string every;
  app.add_option("plan", file, "plan file")->required()->type_name("FILE.plan");
  app.add_option("--data", options.dataDir, "folder or file of the data set, or \"synthetic\"")->type_name("DIR");
  app.add_option("--steps", options.steps, "train until this step, counted from the start of training")
      ->check(checkNotNegative);
  app.add_option("--epochs", options.epochs, "train until the end of this epoch (default: 1)")->check(checkPositive<>);
  app.add_option("--metrics", options.metricsFile, "write metrics as JSON lines")->type_name("FILE.jsonl");
  app.add_option("--checkpoint", options.checkpointDir, "write checkpoints here, read them with --resume and --eval")
      ->type_name("DIR");
  CLI::Option *resume = app.add_flag("--resume", options.resume, "continue from the checkpoint");
  CLI::Option *any = app.add_flag("--resume-if-any", resumeIfAny,
                                  "continue from the checkpoint if there is one, start from the beginning otherwise")
                         ->excludes(resume);
  app.add_flag("--overwrite", options.overwrite, "start over and replace an existing checkpoint in the folder")
      ->excludes(resume)
      ->excludes(any);
  app.add_option("--at-step", options.atStep, "use the checkpoint of this step (default: the last)")
      ->check(checkPositive<>)
      ->type_name("S")
      ->excludes(any);
  app.add_option("--checkpoint-every", every,
                 "write a checkpoint also after every N steps, or when a time has passed: 90s, 30m, 2h")
      ->type_name("N|TIME");
  app.add_option("--keep", options.keep, "number of checkpoints to keep in the folder (default: 2)")
      ->check(checkPositive<>);
  app.add_option("--threads", options.threads, "threads per rank (default: the plan's)")->check(checkPositive<256>);
  app.add_option("--device", options.deviceName, "cpu, cuda, or reference: plain loops (default: the plan's backend)")
      ->check(CLI::IsMember({"cpu", "reference", "cuda"}));
  app.add_flag("!--no-graph", options.graph, "cuda: step by step instead of captured graphs, with the same bits");
  app.add_flag("!--no-deterministic", options.deterministic, "cuda: also use nondeterministic library algorithms");
  app.add_option("--tuning", options.tuning,
                 "cuda: record of measured library choices (default: the user's cache), or \"off\"")
      ->type_name("FILE");
  app.add_flag("--eval", evaluate, "evaluate the checkpoint instead of training");
  app.add_flag("--keep-going", options.keepGoing,
               "continue if the loss is NaN or infinite (by default that ends training)");
  app.add_flag("--find-nan", options.findNan, "name the step that produced the first NaN or infinity; slow")
      ->excludes("--keep-going");
  app.add_flag("--json", options.json, "print results as one JSON object");
  app.add_flag("--quiet", options.quiet, "no progress");
  app.add_flag("--profile", options.profile, "list the slowest steps of rank 0");
  app.add_option("--trace", options.traceFile, "write the last iterations of all ranks for ui.perfetto.dev")
      ->type_name("FILE.json");
  app.add_option("--timeout", options.timeoutSeconds, "seconds a rank waits for another")
      ->check(checkPositive<1000000000>);
  app.add_option("--grace", options.graceSeconds,
                 "seconds within which an interrupted training ends (default: no limit)")
      ->check(checkPositive<1000000000>);
  if (!parseCommandLine(app, argc, argv))
    return 0;

  if (evaluate && options.checkpointDir.empty())
    throw userError("--eval: needs --checkpoint DIR, the checkpoint to evaluate");
  if (evaluate && (options.steps || options.epochs > 0))
    throw userError("--eval: evaluates the whole evaluation split; --steps and --epochs are only for training");
  if (resumeIfAny && options.checkpointDir.empty())
    throw userError("--resume-if-any: needs --checkpoint DIR to continue from");
  options.resume = options.resume || (resumeIfAny && hasCheckpoint(options.checkpointDir));
  options.checkpointEvery = CheckpointInterval::parse(every);
  const auto plan = planForAllRanks([&] { return PlanFile::load(file); }, [&] { return givenValues(file, options, evaluate); },
                                    app.count("--timeout") ? options.timeoutSeconds : meetingSeconds);
  FileRoles files;
  files.reads("the plan", file);
  files.reads("the data file", dataFiles(DataSpec::of(plan->plan()).kind, options.dataDir));
  files.reads("the checkpoint's file", checkpointPaths(options.checkpointDir));
  files.writes("--metrics", options.metricsFile);
  files.writes("--trace", options.traceFile);
  files.writes("--tuning", options.tuning == "off" ? "" : options.tuning);
  files.check();
  if (!evaluate) {
    runTraining(plan, options);
    return 0;
  }
  EvalOptions eval;
  eval.dataDir = options.dataDir;
  eval.checkpointDir = options.checkpointDir;
  eval.atStep = options.atStep;
  eval.threads = options.threads;
  eval.deviceName = options.deviceName;
  eval.tuning = options.tuning;
  eval.json = options.json;
  eval.profile = options.profile;
  eval.traceFile = options.traceFile;
  eval.timeoutSeconds = options.timeoutSeconds;
  runEval(plan, eval);
  return 0;
}

int main(int argc, char **argv) {
  shortenThreadWaits(argc, argv);
  return guardedMain([&] { return run(argc, argv); });
}
