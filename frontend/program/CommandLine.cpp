// Declares the options of every program's commands.
#include "frontend/program/CommandLine.h"
#include "partitioner/schedule/Schedule.h"
#include "runtime/base/ParseNumber.h"

#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave {

namespace {

/// An integer within the range of its type. CLI11 does not check this: it clamps large values and wraps negative ones.
template <class T> CLI::Validator whole() {
  return CLI::Validator(
      [](std::string &text) { return parseNumber<T>(text) ? std::string() : text + " is not an integer in range"; },
      "");
}

/// Rejects an empty text, which would look like a missing option.
CLI::Validator notEmpty() {
  return CLI::Validator(
      [](std::string &text) { return text.empty() ? std::string("must not be empty") : std::string(); }, "");
}

/// A number that plans hold in 32 bits. CLI11 reads 1e-400 as 0.
CLI::Validator number() {
  return CLI::Validator(
      [](std::string &text) {
        const std::optional<double> value = parseNumber<double>(text);
        const bool held = value && (*value == 0 || std::isnormal(static_cast<float>(*value)));
        return held ? std::string() : text + " is not a number that 32 bits hold, 0 or from 1.2e-38 to 3.4e38";
      },
      "");
}

CLI::Validator seconds() {
  constexpr double most = 1e9;
  return CLI::Validator(
      [](std::string &text) {
        const std::optional<double> value = parseNumber<double>(text);
        return value && *value >= 1e-3 && *value <= most ? std::string()
                                                         : text + " is not a number of seconds from 0.001 to 1e9";
      },
      "");
}

/// Options for the split and for the training step.
void addChoices(CLI::App &command, RunOptions &run) {
  command.add_option("--mesh", run.mesh, "devices along each axis, for example dp=2,tp=2,pp=2")->type_name("AXES");
  command.add_option("--devices", run.devices, "number of devices for --strategy")
      ->check(whole<int64_t>())
      ->type_name("N");
  command.add_option("--strategy", run.strategy, "data, model, pipeline, hybrid, or a strategy file")
      ->type_name("WORD|FILE");
  command
      .add_option("--schedule", run.schedule,
                  fmt::format("order of microbatches: {}", fmt::join(partitioner::scheduleNames(), ", ")))
      ->type_name("NAME");
  command
      .add_option("--virtual", run.virtualStages,
                  "pipeline stages of each rank (default: 1; zb-v: 2; interleaved: what makes the step shortest if "
                  "messages take no time)")
      ->check(whole<int64_t>())
      ->type_name("V");
  command.add_option("--microbatches", run.microbatches, "number of parts of a batch (default: 1)")
      ->check(whole<int64_t>())
      ->type_name("M");
  command.add_option("--backend", run.backend, "cpu or cuda")->type_name("NAME");
  command.add_option("--batch", run.batch, "global batch, in samples")->check(whole<int64_t>())->type_name("B");
  command.add_option("--eval-batch", run.evalBatch, "batch of evaluation, in samples (default: --batch)")
      ->check(whole<int64_t>())
      ->type_name("B");
  command
      .add_option("--batch-per-rank", run.batchPerRank,
                  "batch of one device, in samples: the global batch is this many times the size of dp")
      ->check(whole<int64_t>())
      ->type_name("B");
  command.add_option("--optimizer", run.optimizer, "sgd, adam or adamw")->type_name("NAME");
  command.add_option("--lr", run.lr, "learning rate")->check(number())->type_name("X");
  command.add_option("--momentum", run.momentum, "momentum of sgd")->check(number())->type_name("X");
  command.add_option("--weight-decay", run.weightDecay, "weight decay of any optimizer")
      ->check(number())
      ->type_name("X");
  command.add_option("--seed", run.seed, "seed of initial values, data order and dropout (default: 0)")
      ->check(whole<uint64_t>())
      ->type_name("S");
  command.add_option("--threads", run.threads, "threads per rank (default: cores / ranks)")
      ->check(whole<int64_t>())
      ->type_name("T");
  command
      .add_option("--opt-level", run.optLevel,
                  "what uses the half type, as in Apex: O0 none (default), O1 products, "
                  "O2 activations, O3 parameters too")
      ->type_name("O0..O3");
  command
      .add_option("--loss-scale", run.lossScale, "dynamic (default with fp16), none, or a number from 1 to 16777216")
      ->type_name("S");
  command.add_option("--precision", run.precision, "fp32, tf32 (cuda), bf16 or fp16; bf16 and fp16 alone mean O2")
      ->type_name("NAME");
  command
      .add_option("--reduce-dtype", run.reduceDtype,
                  "type of gradient reductions over dp: fp32 (default, except with O3), or bf16 or fp16 as --precision")
      ->type_name("NAME");
  command
      .add_option("--layout", run.layout,
                  "layout of convolutions: nchw, nhwc (channels last), or auto (default): nhwc on GPUs unless "
                  "--precision is fp32")
      ->type_name("NAME");
  command
      .add_option(
          "--recompute", run.recompute,
          "what the backward pass computes again instead of keeping, in repeated layers: none, selective or full")
      ->type_name("NAME");
  command.add_flag("--sequence-parallel", run.sequenceParallel,
                   "split activations between products along the sequence, over tp");
  command
      .add_option(
          "--scatter-gather", run.scatterGather,
          "whether values that all ranks of tp hold cross between stages in slices: never, always, or auto, where "
          "that is faster on --cluster (default: auto)")
      ->type_name("WHEN");
  command
      .add_option("--zero", run.zero,
                  "stage of ZeRO, which splits over dp 1: optimizer states, 2: gradients, too, 3: parameters, too "
                  "(default: 0, none)")
      ->check(whole<int64_t>())
      ->type_name("N");
  command.add_option("--print-ir-after", run.printAfter, "print the IR after this phase to standard error")
      ->type_name("PASS");
}

void addData(CLI::App &command, RunOptions &run) {
  command.add_option("--data", run.data, "folder or file of the data set, or \"synthetic\"")->type_name("DIR");
}

/// Options for profiling, named as in cleave-run.
void addTimes(CLI::App &command, RunOptions &run) {
  command.add_flag("--profile", run.profile, "list the slowest steps of rank 0");
  command.add_option("--trace", run.trace, "write the last iterations of all ranks for ui.perfetto.dev")
      ->type_name("FILE.json");
}

void addTimeout(CLI::App &command, RunOptions &run) {
  command.add_option("--timeout", run.timeout, "seconds a rank waits for another (default: 60)")
      ->check(seconds())
      ->type_name("S");
}

/// Selects one of the checkpoints in a folder.
CLI::Option *addAtStep(CLI::App &command, RunOptions &run) {
  return command.add_option("--at-step", run.atStep, "use the checkpoint of this step (default: the last)")
      ->check(whole<int64_t>())
      ->type_name("S");
}

void addTrain(CLI::App &app, RunOptions &run) {
  CLI::App &train = *app.add_subcommand("train", "trains the model");
  addChoices(train, run);
  addData(train, run);
  train.add_option("--epochs", run.epochs, "train until the end of this epoch (default: 1)")
      ->check(whole<int64_t>())
      ->type_name("E");
  train.add_option("--steps", run.steps, "train until this step, counted from the start of training")
      ->check(whole<int64_t>())
      ->type_name("S");
  train.add_option("--metrics", run.metrics, "write metrics as JSON lines")->type_name("FILE.jsonl");
  train.add_option("--checkpoint", run.checkpoint, "write checkpoints to this folder")->type_name("DIR");
  CLI::Option *resume = train.add_flag("--resume", run.resume, "continue from the checkpoint");
  CLI::Option *any = train
                         .add_flag("--resume-if-any", run.resumeIfAny,
                                   "continue from the checkpoint if there is one, start from the beginning otherwise")
                         ->excludes(resume);
  train.add_flag("--overwrite", run.overwrite, "start over and replace an existing checkpoint in the folder")
      ->excludes(resume)
      ->excludes(any);
  addAtStep(train, run)->excludes(any);
  train
      .add_option("--checkpoint-every", run.checkpointEvery,
                  "write a checkpoint also after every N steps, or when a time has passed: 90s, 30m, 2h")
      ->type_name("N|TIME");
  train.add_option("--keep", run.keep, "number of checkpoints to keep in the folder (default: 2)")
      ->check(whole<int64_t>())
      ->type_name("N");
  addTimeout(train, run);
  train.add_option("--grace", run.grace, "seconds within which an interrupted training ends (default: no limit)")
      ->check(seconds())
      ->type_name("S");
  train.add_option("--plan", run.plan, "run this plan instead of compiling one")->type_name("FILE.plan");
  addTimes(train, run);
  train.add_flag("--json", run.json, "print the result as one JSON object");
  CLI::Option *keepGoing = train.add_flag("--keep-going", run.keepGoing,
                                          "continue if the loss is NaN or infinite (by default that ends training)");
  train.add_flag("--find-nan", run.findNan, "name the op that produced the first NaN or infinity; slow")
      ->excludes(keepGoing);
  train.add_flag("--quiet", run.quiet, "no progress");
}

void addEval(CLI::App &app, RunOptions &run) {
  CLI::App &eval = *app.add_subcommand("eval", "evaluates a checkpoint on the data's evaluation split");
  addData(eval, run);
  eval.add_option("--checkpoint", run.checkpoint, "folder of the checkpoint")->type_name("DIR")->required();
  eval.add_option("--plan", run.plan, "run this plan instead of compiling one")->type_name("FILE.plan");
  eval.add_option("--mesh", run.mesh, "devices along each axis (default: one device)")->type_name("AXES");
  eval.add_option("--batch", run.batch, "samples evaluated at once (default: the training's)")
      ->check(whole<int64_t>())
      ->type_name("B");
  eval.add_option("--backend", run.backend, "cpu or cuda")->type_name("NAME");
  eval.add_option("--threads", run.threads, "threads per rank (default: cores / ranks)")
      ->check(whole<int64_t>())
      ->type_name("T");
  addAtStep(eval, run);
  addTimeout(eval, run);
  addTimes(eval, run);
  eval.add_flag("--json", run.json, "print loss, accuracy and samples as one JSON object");
}

} // namespace

void addPrediction(CLI::App &command, RunOptions &run) {
  command.add_option("--checkpoint", run.checkpoint, "folder of the checkpoint")->type_name("DIR")->required();
  addAtStep(command, run);
  addTimeout(command, run);
  command.add_option("--mesh", run.mesh, "devices along each axis (default: one device)")->type_name("AXES");
  command.add_option("--backend", run.backend, "cpu or cuda")->type_name("NAME");
  command.add_option("--threads", run.threads, "threads per rank (default: cores / ranks)")
      ->check(whole<int64_t>())
      ->type_name("T");
}

void addCommands(CLI::App &app, CommandLine &line) {
  app.require_subcommand(1, 1);
  addTrain(app, line.run);
  addEval(app, line.run);
  CLI::App &predict = *app.add_subcommand("predict", "writes the model's outputs for the data's evaluation split");
  addPrediction(predict, line.run);
  addData(predict, line.run);
  predict.add_option("--batch", line.run.batch, "samples computed at once (default: a microbatch of the training)")
      ->check(whole<int64_t>())
      ->type_name("B");
  predict.add_option("--seed", line.run.seed, "seed of random numbers (default: the training's)")
      ->check(whole<uint64_t>())
      ->type_name("S");
  predict.add_option("-o,--output", line.output, "the file, one row a sample")->type_name("FILE.npy")->required();
  predict.add_flag("--json", line.run.json, "print a summary as one JSON object");
  CLI::App &plan = *app.add_subcommand("plan", "compiles the training step into a plan file");
  addChoices(plan, line.run);
  addData(plan, line.run);
  plan.add_option("--target", line.run.target,
                  "target of the code: x86-64-v3, x86-64-v4 (default: this processor's); sm_80, sm_90, sm_100 "
                  "(with --backend cuda; default sm_90)")
      ->type_name("NAME");
  plan.add_option("--cluster", line.run.cluster, "the hardware to plan for, kept in the plan for cleave simulate")
      ->type_name("FILE.toml");
  plan.add_flag("!--no-code", line.run.code, "omit the kernels' machine code");
  plan.add_option("-o,--output", line.output, "the plan file")->type_name("FILE.plan")->required();
  plan.add_flag("--json", line.run.json, "print a summary of the plan as one JSON object");
  CLI::App &check = *app.add_subcommand("check", "compares the plan with the reference interpreter");
  addChoices(check, line.run);
  addData(check, line.run);
  check.add_option("--steps", line.run.steps, "training steps to compare (default: 1)")
      ->check(whole<int64_t>())
      ->type_name("S");
  check.add_option("--plan", line.run.plan, "check this plan instead of compiling one")->type_name("FILE.plan");
  CLI::App &graph = *app.add_subcommand("graph", "writes the traced graph as IR");
  addChoices(graph, line.run);
  graph.add_option("-o,--output", line.output, "the IR file (default: standard output)")->type_name("FILE.mlir");
  for (CLI::App *command : app.get_subcommands({}))
    for (CLI::Option *option : command->get_options())
      if (option->get_expected_min() > 0) // not a flag
        option->check(notEmpty());
}

} // namespace cleave
