// The options that decide what is compiled, a row each.
#include "frontend/program/Options.h"
#include "frontend/program/ResolvedOptions.h"
#include "partitioner/schedule/Schedule.h"
#include "partitioner/strategy/Decisions.h"
#include "runtime/checkpoint/TrainingJson.h"
#include "runtime/plan/Inputs.h"
#include "runtime/plan/OptimizerFields.h"
#include "runtime/plan/Slices.h"
#include "runtime/plan/Text.h"
#include "runtime/plan/plan_generated.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave {

plan::TrainingT trainingOf(const plan::Plan &plan) {
  plan::TrainingT training;
  if (plan.training())
    plan.training()->UnPackTo(&training);
  return training;
}

namespace {

using Planned = decltype(Option::planned);

/// Compares the option's field with `value` of the plan.
template <class Field, class Value> Planned planned(Field field, Value value) {
  return [=](const plan::Plan &plan, const RunOptions &given) -> std::optional<std::string> {
    const auto found = value(plan);
    return given.*field == found ? std::nullopt : std::optional(fmt::format("{}", found));
  };
}

/// The same with a value of the plan's training; a plan without optimizer agrees with every one.
template <class Field, class Value> Planned optimizer(Field field, Value value) {
  return [=](const plan::Plan &plan, const RunOptions &given) -> std::optional<std::string> {
    const plan::TrainingT training = trainingOf(plan);
    return training.optimizer ? planned(field, [&](auto &) { return value(training); })(plan, given) : std::nullopt;
  };
}

Planned precision(std::string RunOptions::*field, std::string Precision::Words::*word) {
  return planned(field, [word](const plan::Plan &plan) { return precisionOf(trainingOf(plan)).words().*word; });
}

std::optional<std::string> otherMesh(const plan::Plan &plan, const RunOptions &given) {
  const std::string found = partitioner::meshText(meshOf(plan));
  return partitioner::meshText(partitioner::parseMesh(given.mesh)) == found ? std::nullopt : std::optional(found);
}

/// A search may have found a published schedule.
std::optional<std::string> otherSchedule(const plan::Plan &plan, const RunOptions &given) {
  if (given.schedule == partitioner::searchedSchedule && plan.choices() && plan.choices()->searched())
    return std::nullopt;
  return planned(&RunOptions::schedule, [](auto &plan) { return text(plan.schedule()); })(plan, given);
}

std::optional<std::string> otherBatchPerRank(const plan::Plan &plan, const RunOptions &given) {
  const int64_t dp = sizeOfAxis(plan, AxisRole::Data), batch = globalBatch(*given.batchPerRank, dp);
  if (batch == plan.batch())
    return std::nullopt;
  return fmt::format("a global batch of {}, with dp={} this is {}", plan.batch(), dp, batch);
}

std::vector<Option> compileOptions() {
  using namespace commands;
  using Run = RunOptions;
  using Agree = Option::Agree;
  constexpr const char *strategy = "which contains its strategy", *schedule = "which has its learning rates";
  constexpr Limits epochs{0, 1e6};
  constexpr Limits counts{1, std::numeric_limits<int32_t>::max()}, rates{0, 1e30};
  return {
      {.name = "--recipe",
       .field = &Run::recipe,
       .type = "FILE.toml",
       .uses = {{compile | trained | commands::data, "file with lines NAME = VALUE for options that are not given"}},
       .ranks = Agree::Contents},
      {.name = "--mesh",
       .field = &Run::mesh,
       .type = "AXES",
       .uses = {{compile, "devices along each axis, for example dp=2,tp=2,pp=2; pp=2/tp=2/dp=2 also orders the ranks, "
                          "dp fastest (with "
                          "--cluster or --devices: found by a search)"},
                {trained, "devices along each axis (default: as --devices says)"}},
       .ranks = Agree::Value,
       .planned = otherMesh},
      {.name = "--devices",
       .field = &Run::devices,
       .type = "N",
       .uses =
           {{compile,
             "number of devices to split over: for --strategy, or found by a search; plan prints a table for a list "
             "of numbers, 8,16,32, and for a list of files of --cluster"},
            {trained,
             "number of devices: as many copies of the model as fit their memory (default: a launcher's ranks, or "
             "one)"}},
       .limits = counts,
       .ranks = Agree::Value,
       .refused = strategy},
      {.name = "--strategy",
       .field = &Run::strategy,
       .type = "WORD|FILE",
       .uses = {{compile, "data, model, pipeline, hybrid, auto (found by a search), or a strategy file; with --cluster "
                          "a search finds "
                          "what these leave open"}},
       .ranks = Agree::Contents,
       .refused = strategy},
      {.name = "--search-seconds",
       .field = &Run::searchSeconds,
       .type = "S",
       .uses = {{compile, "seconds after which a search takes the best strategy so far (default: it ends by itself)"}},
       .limits = Limits{0, 1e9},
       .ranks = Agree::Value,
       .refused = strategy},
      {.name = "--schedule",
       .field = &Run::schedule,
       .type = "NAME",
       .uses = {{compile, fmt::format("order of microbatches: {}", fmt::join(partitioner::scheduleNames(), ", "))}},
       .words = partitioner::scheduleNames(),
       .ranks = Agree::Value,
       .planned = otherSchedule},
      {.name = "--virtual",
       .field = &Run::virtualStages,
       .type = "V",
       .uses = {{compile, "pipeline stages of each rank (default: 1; zb-v: 2; interleaved: what makes the step "
                          "shortest if messages take no time)"}},
       .limits = counts,
       .ranks = Agree::Value,
       .refused = strategy},
      {.name = "--microbatches",
       .field = &Run::microbatches,
       .type = "M",
       .uses = {{compile, "number of parts of a batch (default: 1)"}},
       .limits = counts,
       .ranks = Agree::Value,
       .planned = planned(&Run::microbatches, [](auto &plan) { return int64_t(plan.microbatches()); })},
      {.name = "--backend",
       .field = &Run::backend,
       .type = "NAME",
       .uses = {{compile | trained, "cpu or cuda"}},
       .ranks = Agree::Value,
       .planned = planned(&Run::backend, [](auto &plan) { return text(plan.backend()); })},
      {.name = "--batch",
       .field = &Run::batch,
       .type = "B",
       .uses = {{compile, "global batch, in samples"},
                {eval, "samples evaluated at once (default: the training's)"},
                {predict, "samples computed at once (default: a microbatch of the training)"}},
       .limits = counts,
       .ranks = Agree::Value,
       .planned = planned(&Run::batch, [](auto &plan) { return int64_t(plan.batch()); })},
      {.name = "--eval-batch",
       .field = &Run::evalBatch,
       .type = "B",
       .uses = {{compile, "batch of evaluation, in samples (default: --batch)"}},
       .limits = counts,
       .ranks = Agree::Value,
       .planned = planned(&Run::evalBatch, [](auto &plan) { return evalBatchOf(plan); })},
      {.name = "--batch-per-rank",
       .field = &Run::batchPerRank,
       .type = "B",
       .uses = {{compile, "batch of one device, in samples: the global batch is this many times the size of dp"}},
       .limits = counts,
       .ranks = Agree::Value,
       .planned = otherBatchPerRank},
      {.name = "--optimizer",
       .field = &Run::optimizer,
       .type = "NAME",
       .uses = {{compile, "sgd, adam or adamw"}},
       .words = {optimizerNames.begin(), optimizerNames.end()},
       .ranks = Agree::Value,
       .planned = optimizer(&Run::optimizer, optimizerNameOf)},
      {.name = "--lr",
       .field = &Run::lr,
       .type = "X",
       .uses = {{compile, "learning rate"}},
       .limits = rates,
       .ranks = Agree::Value,
       .planned = optimizer(&Run::lr, [](auto &training) { return training.rate ? training.rate->base : 0.0; })},
      {.name = "--momentum",
       .field = &Run::momentum,
       .type = "X",
       .uses = {{compile, "momentum of sgd"}},
       .limits = {0, 1},
       .ranks = Agree::Value,
       .planned = optimizer(&Run::momentum, [](auto &training) { return training.optimizer->momentum; })},
      {.name = "--weight-decay",
       .field = &Run::weightDecay,
       .type = "X",
       .uses = {{compile, "weight decay of any optimizer"}},
       .limits = rates,
       .ranks = Agree::Value,
       .planned = optimizer(&Run::weightDecay, [](auto &training) { return training.optimizer->weight_decay; })},
      {.name = "--ema",
       .field = &Run::ema,
       .type = "D",
       .uses = {{compile, "decay of averages of the parameters, which evaluations and predictions use; 0: none"}},
       .limits = {0, 1},
       .ranks = Agree::Value,
       .planned = optimizer(&Run::ema, [](auto &training) { return training.optimizer->ema; })},
      {.name = "--lr-schedule",
       .field = &Run::lrSchedule,
       .type = "NAME",
       .uses = {{compile,
                 "learning rate over the steps: constant, step (a tenth after every --every-epochs), or cosine "
                 "to 0 at the end (default: the program's)"}},
       .words = {"constant", "step", "cosine"},
       .ranks = Agree::Value,
       .refused = schedule},
      {.name = "--warmup-epochs",
       .field = &Run::warmupEpochs,
       .type = "E",
       .uses = {{compile, "epochs in which the learning rate grows from 0 (default: the program's)"}},
       .limits = epochs,
       .ranks = Agree::Value,
       .refused = schedule},
      {.name = "--every-epochs",
       .field = &Run::everyEpochs,
       .type = "E",
       .uses = {{compile, "epochs between the steps of --lr-schedule step (default: 30)"}},
       .limits = epochs,
       .ranks = Agree::Value,
       .refused = schedule},
      {.name = "--seed",
       .field = &Run::seed,
       .type = "S",
       .uses = {{compile, "seed of initial values, data order and dropout (default: 0)"},
                {predict, "seed of random numbers (default: the training's)"},
                {commands::data, "seed of the random transforms (default: 0)"}},
       .ranks = Agree::Value,
       .planned = planned(&Run::seed, [](auto &plan) { return uint64_t(plan.seed()); })},
      {.name = "--opt-level",
       .field = &Run::optLevel,
       .type = "O0..O3",
       .uses = {{compile, "what uses the half type, as in Apex: O0 none (default), O1 products, O2 activations, O3 "
                          "parameters too"}},
       .ranks = Agree::Value,
       .planned = precision(&Run::optLevel, &Precision::Words::level)},
      {.name = "--loss-scale",
       .field = &Run::lossScale,
       .type = "S",
       .uses = {{compile, "dynamic (default with fp16), none, or a number from 1 to 16777216"}},
       .ranks = Agree::Value,
       .planned = precision(&Run::lossScale, &Precision::Words::lossScale)},
      {.name = "--precision",
       .field = &Run::precision,
       .type = "NAME",
       .uses = {{compile, "fp32, tf32 (cuda), bf16 or fp16; bf16 and fp16 alone mean O2"}},
       .ranks = Agree::Value,
       .planned = precision(&Run::precision, &Precision::Words::type)},
      {.name = "--reduce-dtype",
       .field = &Run::reduceDtype,
       .type = "NAME",
       .uses = {{compile, "type of gradient reductions over dp: fp32 (default, except with O3), or bf16 or fp16 as "
                          "--precision"}},
       .ranks = Agree::Value,
       .planned = precision(&Run::reduceDtype, &Precision::Words::reduce)},
      {.name = "--layout",
       .field = &Run::layout,
       .type = "NAME",
       .uses = {{compile,
                 "layout of convolutions: nchw, nhwc (channels last), or auto (default): nhwc on CPUs, and on GPUs "
                 "unless --precision is fp32"}},
       .words = {"auto", "nchw", "nhwc"},
       .ranks = Agree::Value,
       .refused = "which has a fixed layout"},
      {.name = "--winograd",
       .field = &Run::winograd,
       .type = "WHEN",
       .uses =
           {{compile,
             "whether convolutions of f32 or bf16 with 3 x 3 or 5 x 5 windows and stride 1 may use Winograd's method, "
             "which multiplies less and rounds more: auto (default), where it is faster, never, or always"}},
       .words = {"auto", "never", "always"},
       .ranks = Agree::Value,
       .refused = "which chooses the methods of convolutions"},
      {.name = "--recompute",
       .field = &Run::recompute,
       .type = "NAME",
       .uses = {{compile, "what the backward pass computes again instead of keeping, in repeated layers: none, "
                          "selective or full"}},
       .words = {"none", "selective", "full"},
       .ranks = Agree::Value,
       .refused = strategy},
      {.name = "--sequence-parallel",
       .field = &Run::sequenceParallel,
       .uses = {{compile, "split activations between products along the sequence, over tp"}},
       .ranks = Agree::Given,
       .refused = strategy},
      {.name = "--scatter-gather",
       .field = &Run::scatterGather,
       .type = "WHEN",
       .uses = {{compile, "whether values that all ranks of tp hold cross between stages in slices: never, always, or "
                          "auto, where that is faster on --cluster (default: auto)"}},
       .words = {"never", "always", "auto"},
       .ranks = Agree::Value,
       .refused = strategy},
      {.name = "--zero",
       .field = &Run::zero,
       .type = "N",
       .uses = {{compile, "stage of ZeRO, which splits over dp 1: optimizer states, 2: gradients, too, 3: parameters, "
                          "too (default: 0, none)"}},
       .limits = {0, 3},
       .ranks = Agree::Value,
       .refused = strategy},
      {.name = "--target",
       .field = &Run::target,
       .type = "NAME",
       .uses = {{planOnly, "target of the code: x86-64-v3, x86-64-v4 (default: this processor's); sm_80, sm_90, sm_100 "
                           "(with --backend cuda; default sm_90)"}},
       .ranks = Agree::Value},
      {.name = "--cluster",
       .field = &Run::cluster,
       .type = "FILE.toml",
       .uses = {{planOnly, "the hardware to plan for, kept in the plan for cleave simulate"},
                {train | commands::check | trained,
                 "the hardware, whose memory the plan must fit; a training searches for it as plan does (default: this "
                 "machine's memory and GPUs)"}},
       .ranks = Agree::Contents,
       .refused = "which is made for its hardware"},
      {.name = "--like",
       .field = &Run::like,
       .type = "FILE.plan",
       .uses = {{planOnly,
                 "repeat the request of this plan of the same program (model, batch, precision, cluster, what was "
                 "asked of the split), changed by the other options"}}},
      {.name = "--alternatives",
       .field = &Run::alternatives,
       .uses = {{planOnly,
                 "store the best plans that differ in one decision, for cleave explain (needs a cluster); with --like "
                 "alone: those of that plan"}}},
      {.name = "--samples",
       .field = &Run::samples,
       .type = "N",
       .uses = {{planOnly, "samples of the whole training: a table (--devices 8,16,32) then has hours"}},
       .limits = {1, 9e18}},
      {.name = "--dump-problems",
       .field = &Run::dumpProblems,
       .type = "FOLDER",
       .uses = {{planOnly,
                 "write the sharding problems that the search solves, and their solutions, for cleave solve"}}},
      {.name = "--no-code", .field = &Run::code, .uses = {{planOnly, "omit the kernels' machine code"}}},
      {.name = "--print-ir-after",
       .field = &Run::printAfter,
       .type = "PASS",
       .uses = {{compile, "print the IR after this phase to standard error"}}},
  };
}

} // namespace

const std::vector<Option> &programOptions() {
  static const std::vector<Option> options = [] {
    std::vector<Option> all = compileOptions();
    all.insert(all.end(), sessionOptions().begin(), sessionOptions().end());
    return all;
  }();
  return options;
}

} // namespace cleave
