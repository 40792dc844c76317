// Runs one case through the whole product, and judges the result.
#include "tests/random/Run.h"
#include "frontend/program/Check.h"
#include "frontend/program/ResolvedOptions.h"
#include "frontend/trace/Trace.h"
#include "frontend/trace/TraceModel.h"
#include "ir/graph/Graph.h"
#include "partitioner/apply/LocalPrograms.h"
#include "partitioner/stages/Layers.h"
#include "passes/decompose/Decompose.h"
#include "passes/export/TensorKinds.h"
#include "passes/pipeline/Phases.h"
#include "passes/simplify/Simplify.h"
#include "runtime/base/Error.h"
#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/comm/LocalWorld.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/Slices.h"
#include "runtime/plan/check/Check.h"
#include "runtime/plan/plan_generated.h"
#include "runtime/session/RankJob.h"
#include "tests/random/Compare.h"
#include "tests/random/Forward.h"
#include "tests/random/Instance.h"
#include "tests/random/InvalidIndex.h"
#include "tests/random/Numbers.h"
#include "tests/random/Reach.h"
#include "tests/random/Refusals.h"
#include "tests/random/Searched.h"
#include "tests/random/Tables.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <mutex>
#include <unistd.h>

namespace cleave::random_models {

namespace {

ResolvedOptions optionsOf(const Recipe &r, const TrainConfig &config) {
  ResolvedOptions job = resolveOptions(config, optionsFor(r));
  if (!r.stagesAndShards.empty() || !r.found.empty()) {
    const partitioner::Decisions fromOptions = job.strategy;
    job.strategy = partitioner::Decisions::parse(r.strategy(), "strategy.toml");
    if (r.found.empty()) {
      job.strategy.recompute = fromOptions.recompute;
      job.strategy.sequence = fromOptions.sequence;
      job.strategy.zero = fromOptions.zero;
    }
    job.strategy.scatterGather = fromOptions.scatterGather;
  }
  return job;
}

passes::CompileOptions compileOptionsOf(const ResolvedOptions &job, bool code) {
  passes::CompileOptions compile = job;
  compile.code = code;
  compile.model = "random";
  return compile;
}

GraphModule traced(const Recipe &recipe, const TrainConfig &config, bool marks) {
  Instance root(recipe, 0, marks);
  return traceModel(modelOf(root), config, recipe.rows(), recipe.evalBatch / recipe.microbatches);
}

} // namespace

Model modelOf(Instance &root) {
  return {&root, [&](std::span<const Tensor> in) { return root.outputs({in.begin(), in.end()}); }, "random", "{}"};
}

// ---- the distributed interpreter ------------------------------------------------------------------------------------

ir::DistributedProgram programOf(const partitioner::LocalPrograms &applied, bool evaluation) {
  ir::DistributedProgram program{applied.module.get().getOperation(), applied.decisions.mesh, {}, {}};
  program.functions.resize(static_cast<size_t>(program.mesh.ranks()));
  program.schedules.resize(program.functions.size());
  for (const partitioner::RankClass &rankClass : applied.classes)
    for (const int64_t rank : rankClass.ranks)
      for (const partitioner::ScheduleItem &item :
           (evaluation ? applied.eval : applied.train)[static_cast<size_t>(rankClass.position)]) {
        program.schedules[static_cast<size_t>(rank)].push_back({item.segment.str(), item.microbatch});
        if (const auto found = rankClass.functions.find(item.segment); found != rankClass.functions.end())
          program.functions[static_cast<size_t>(rank)][item.segment.str()] = found->second;
      }
  return program;
}

namespace {

/// The plans without training.
struct ForwardCases {
  ForwardCase evaluation, prediction;
};

/// Runs the evaluation after the last step; adds its sums as group `firstBatch`.
void evaluate(const Recipe &recipe, const partitioner::LocalPrograms &applied, const Whole &whole,
              std::vector<ir::Slots> &slots, ir::Slots &found) {
  const ir::DistributedProgram program = programOf(applied, true);
  ir::Slots given = whole.beginning(); // for what training does not read
  whole.addEvaluation(given);
  std::vector<ir::Slots> pieces = ir::scatterSlots(program, given);
  for (size_t rank = 0; rank < slots.size(); ++rank) {
    std::erase_if(slots[rank], [](const auto &entry) {
      return entry.first.kind == ir::SlotKind::Metric || entry.first.kind == ir::SlotKind::Input;
    });
    slots[rank].merge(pieces[rank]);
  }
  slots = ir::runDistributed(program, std::move(slots), evaluationContext(recipe));
  for (const ir::Slots &rank : slots)
    for (const auto &[key, tensor] : rank)
      if (key.kind == ir::SlotKind::Metric)
        found.try_emplace(groupKey(firstBatch, key.name), tensor);
}

/// Runs the undivided graph that computes forward values again, with noise: a copy of an op then differs from the op in
/// its last bits, as if it were split otherwise. Returns the first difference and its step, or empty. Errors that cancel
/// where the backward pass reads what the forward pass made do not cancel with a copy (a softmax' gradient of equal
/// logits), so the bounds are wider than those of the graph: a copy that decides otherwise, or whose errors are
/// amplified, is still far outside.
std::string compareRecomputed(const Whole &recomputed, const Whole &whole, ir::Bounds &reference) {
  const Steps found = ir::Bounds::noisyInDouble([&] { return recomputed.run(); });
  const auto compare = [&] {
    constexpr double uncancelled = 16;
    Steps spread = reference.spread;
    for (size_t s = 0; s < found.size(); ++s) {
      for (auto &[key, tensor] : spread[s])
        for (double &value : tensor.values)
          value *= uncancelled;
      if (const std::string text = compareWhole(reference.exact[s], spread[s], found[s], false); !text.empty())
        return fmt::format("after step {}: {}", s + 1, text);
    }
    return std::string();
  };
  std::string text = compare();
  if (!text.empty()) { // try again with more samples of noise
    reference.widenOfDouble([&] { return whole.run(); });
    text = compare();
  }
  return text;
}

/// Runs both training steps in double with one thread per rank, then an evaluation, and the plans without training.
/// Returns the first difference and its step, or empty.
std::string runDistributed(const Recipe &recipe, const partitioner::LocalPrograms &applied,
                           const ForwardCases &forward, const Whole &whole, ir::Bounds &reference,
                           const std::vector<bool> &exact) {
  const ir::DistributedProgram program = programOf(applied);
  ir::RoundingScope scope({ir::Rounding::Kind::None});
  std::vector<ir::Slots> slots;
  for (int64_t at = 1; at <= trainingSteps; ++at) {
    ir::Slots given = at == 1 ? whole.beginning() : ir::Slots();
    whole.addStep(given, at);
    std::vector<ir::Slots> pieces = ir::scatterSlots(program, given);
    if (at == 1)
      slots = std::move(pieces);
    else
      for (size_t rank = 0; rank < slots.size(); ++rank)
        for (auto &[key, tensor] : pieces[rank])
          slots[rank][key] = std::move(tensor);
    slots = ir::runDistributed(program, std::move(slots), {.seed = runSeed, .trainingStep = at});
    ir::Slots found = ir::gatherSlots(program, slots);
    for (const ir::Slots &rank : slots)
      for (const auto &[key, tensor] : rank)
        if (key.kind == ir::SlotKind::Metric)
          found.try_emplace(key, tensor);
    ir::Slots sums; // of the plan that only evaluates
    if (at == trainingSteps) {
      const ir::Slots state = found;
      evaluate(recipe, applied, whole, slots, found);
      sums = forward.evaluation.interpreted(whole, state);
      found.merge(forward.prediction.interpreted(whole, state));
    }
    const size_t s = static_cast<size_t>(at - 1);
    const auto compare = [&](bool equal) {
      std::string text = compareWhole(reference.exact[s], reference.spread[s], found, equal);
      if (text.empty() && at == trainingSteps)
        text = compareOnly(reference.exact[s], reference.spread[s], sums, equal, isOfFirstBatch);
      return text;
    };
    std::string text = compare(exact[s]);
    if (!text.empty() && !exact[s]) { // try again with more samples of noise
      reference.widenOfDouble([&] { return whole.run(); });
      text = compare(false);
    }
    if (!text.empty())
      return fmt::format("after step {}: {}", at, text);
  }
  return {};
}

// ---- the executor ---------------------------------------------------------------------------------------------------

/// Calls fn(key, slot, global indices, local indices) for each persistent slot that holds a piece of a global tensor.
template <class F> void forEachPiece(const plan::Plan &plan, Executor &executor, F fn) {
  const plan::Program &program = executor.program;
  const std::vector<uint32_t> sizes = meshSizes(plan);
  const std::vector<uint32_t> coords(executor.rank.coords()->begin(), executor.rank.coords()->end());
  for (unsigned s = 0; s < program.slots()->size(); ++s) {
    const plan::Slot &slot = *program.slots()->Get(s);
    if (slot.space() != plan::Space::Persistent || slot.tensor() < 0)
      continue;
    const plan::Tensor &tensor = *plan.tensors()->Get(static_cast<unsigned>(slot.tensor()));
    const ir::SlotKind kind = passes::keptKindOf(tensor.kind());
    if (kind == ir::SlotKind::None)
      continue;
    const std::vector<int64_t> global =
        tensor.shape() ? std::vector<int64_t>(tensor.shape()->begin(), tensor.shape()->end()) : std::vector<int64_t>();
    std::vector<int64_t> globals, locals;
    for (const Piece &piece : localPieces(slot.sharding(), global, sizes, coords, int64_t(1) << 40))
      for (int64_t i = 0; i < piece.count; ++i) {
        globals.push_back(piece.global + i);
        locals.push_back(piece.local + i);
      }
    fn(ir::SlotKey{kind, tensor.name()->str()}, s, slot, globals, locals);
  }
}

/// A folder that is removed at the end.
struct TemporaryFolder {
  std::string path = std::filesystem::temp_directory_path() / fmt::format("cleave-random-{}", getpid());
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};

/// Runs the plan of the training, and the plans without training on its checkpoint.
std::string execute(const std::shared_ptr<const PlanFile> &file, const ForwardCases &forward, const Recipe &recipe,
                    const HashedData &data, const Whole &whole, ir::Bounds &reference, const std::vector<bool> &exact) {
  const plan::Plan &plan = file->plan();
  LocalWorld world(plan.ranks()->size());
  SampleOrder order(data.samples(Split::Train), runSeed);
  const ir::Slots beginning = whole.beginning();
  // Where evaluation combines samples, its batches must be whole (requireWholeBatches).
  const bool evaluates =
      (!plan.eval_mixes() && !whole.drawsInEvaluation()) || recipe.evalSamples == recipe.evalBatch;
  std::string difference;
  Pieces pieces;
  std::mutex mutex;
  ExecutorOptions options;
  options.threads = 1;
  options.timeoutSeconds = 20;
  // `found` compares what was found after the step with the reference.
  const auto compare = [&](int64_t step, auto found) {
    const auto s = static_cast<size_t>(step - 1);
    const ir::Run run = [&] { return whole.run(); };
    const ir::Bounds::Types types{.addends = whole.sums()};
    if (recipe.precision == "fp16" && reference.leavesRange(run, types, s))
      return;
    std::string text = found(reference.exact[s], reference.spread[s], exact[s]);
    while (!text.empty() && !exact[s] && reference.widenInTypes(run, types))
      text = found(reference.exact[s], reference.spread[s], false);
    if (!text.empty() && reference.leavesRange(run, types, s))
      text.clear();
    if (!text.empty())
      difference = fmt::format("after step {}: {}", step, text);
  };
  const TemporaryFolder checkpoint;
  runRanks(world, [&](unsigned rank) {
    RankJob job(file, rank, world[rank], data, order, options);
    Executor &executor = job.executor();
    if (executor.memoryBytes() != executor.program.peak_bytes()) {
      std::lock_guard lock(mutex);
      difference = fmt::format("rank {} has {} bytes, its plan says {}", rank, executor.memoryBytes(),
                               executor.program.peak_bytes());
    }
    forEachPiece(
        plan, executor,
        [&](const ir::SlotKey &key, unsigned s, const plan::Slot &slot, const auto &globals, const auto &locals) {
          const auto given = beginning.find(key);
          if (given == beginning.end())
            return;
          const std::span<std::byte> memory = executor.persistent(s);
          for (size_t i = 0; i < globals.size(); ++i)
            storeElement(memory.data(), locals[i], slot.dtype(), given->second.values[static_cast<size_t>(globals[i])]);
        });
    executor.writeBack();
    DataPosition at;
    for (int64_t step = 1; step <= trainingSteps; ++step) {
      const LossSums sums = job.metrics(job.train(step, static_cast<float>(recipe.lr), at, std::nullopt));
      forEachPiece(
          plan, executor,
          [&](const ir::SlotKey &key, unsigned s, const plan::Slot &slot, const auto &globals, const auto &locals) {
            HeldPiece piece{rank, globals, {}};
            const std::span<std::byte> memory = executor.persistent(s);
            for (const int64_t local : locals)
              piece.values.push_back(loadElement(memory.data(), local, slot.dtype()));
            std::lock_guard lock(mutex);
            pieces[key].push_back(std::move(piece));
          });
      const LossSums evaluated = evaluates && step == trainingSteps ? job.evaluate(step) : LossSums();
      world[rank].barrier();
      if (rank == 0) {
        compare(step, [&](const ir::Slots &expected, const ir::Slots &spread, bool equal) {
          const std::string text = comparePieces(expected, spread, pieces, equal);
          return text.empty() ? compareSums(expected, spread, sums, evaluated, equal) : text;
        });
        pieces.clear();
      }
      world[rank].barrier();
      if (!difference.empty())
        return;
      at.sample += recipe.batch;
      at.settle(data.samples(Split::Train), recipe.batch);
    }
    CheckpointWriter writer(file, rank, world[rank], {checkpoint.path});
    writer.save({.step = trainingSteps,
                 .seed = runSeed,
                 .batch = recipe.batch,
                 .model = "random",
                 .options = "{}",
                 .training = "{}",
                 .data = "{}"},
                [&](unsigned slot) { return executor.persistent(slot); });
    writer.close();
  });
  if (!difference.empty())
    return difference;
  const ir::Slots outputs = forward.prediction.predicted(data, whole.predictedSamples(), checkpoint.path);
  compare(trainingSteps, [&](const ir::Slots &expected, const ir::Slots &spread, bool equal) {
    return compareOnly(expected, spread, outputs, equal, isOutput);
  });
  const LossSums sums = evaluates ? forward.evaluation.evaluated(data, checkpoint.path) : LossSums();
  compare(trainingSteps, [&](const ir::Slots &expected, const ir::Slots &spread, bool equal) {
    return compareSums(expected, spread, {}, sums, equal);
  });
  return difference;
}

// ---- judging --------------------------------------------------------------------------------------------------------

/// A name for similar failures: the first line of the message without quoted names, each number replaced by #.
std::string kindOf(const std::string &text) {
  std::string out;
  bool quoted = false;
  for (const char c : text.substr(0, text.find('\n'))) {
    quoted ^= c == '"';
    if (quoted && c != '"')
      continue;
    if (std::isdigit(static_cast<unsigned char>(c))) {
      if (out.empty() || out.back() != '#')
        out += '#';
    } else
      out += c;
  }
  return out.substr(0, 90);
}

Result verdict(Verdict verdict, const std::string &kind, const std::string &text) {
  Result result;
  result.verdict = verdict, result.kind = kind, result.text = text;
  return result;
}
Result failed(const std::string &kind, const std::string &text) { return verdict(Verdict::Failed, kind, text); }

/// Suffix for the kind of a failure: says that a tensor is missing; empty if numbers differ.
std::string lacking(const std::string &text) {
  return text.find(" is nowhere") != std::string::npos || text.find(" is on no rank") != std::string::npos
             ? ": a tensor is missing"
             : "";
}

/// Compiles the model again with the strategy that the plan records. Describes the change of stages or of the
/// parameters' shardings; empty if there is none.
std::string differenceGivenBack(const partitioner::LocalPrograms &applied, const Recipe &recipe,
                                const TrainConfig &config, passes::CompileOptions options) {
  const std::string strategy = applied.decisions.toToml();
  try {
    options.strategy = partitioner::Decisions::parse(strategy, "written.toml");
    GraphModule model = traced(recipe, config, true);
    const partitioner::LocalPrograms again = passes::applyStrategy(model, options);
    const auto sameStage = [](const partitioner::StageInfo &a, const partitioner::StageInfo &b) {
      return a.layers == b.layers && a.parameters == b.parameters && a.flops == b.flops;
    };
    const auto sameRule = [](const partitioner::ShardRule &a, const partitioner::ShardRule &b) {
      return a.pattern == b.pattern && a.dims == b.dims;
    };
    if (std::ranges::equal(applied.stages, again.stages, sameStage) &&
        std::ranges::equal(applied.decisions.shard, again.decisions.shard, sameRule))
      return {};
    return fmt::format("{}\nbecomes\n{}", strategy, again.decisions.toToml());
  } catch (const Error &error) {
    return fmt::format("{}\n{}", strategy, error.what());
  }
}

Result refusedOrFailed(const Recipe &recipe, const Error &error) {
  const std::string text = error.what();
  if (error.status != Status::User)
    return failed("internal error: " + kindOf(text), text);
  const std::string reason = trueReason(recipe, text);
  if (reason.empty())
    return failed("refused for no reason: " + kindOf(text), text);
  return verdict(Verdict::Refused, reason, text);
}

/// Compiles the same plan for GPUs, without code, and returns the checker's defects. That plan has streams, waits
/// between them, and another order of collectives, those over dp in a stream of their own for every other seed.
std::string defectsForGpu(const Recipe &recipe, const TrainConfig &config, passes::CompileOptions options) {
  options.backend = Target::Kind::Cuda;
  options.target.reset();
  options.code = false;
  try {
    GraphModule model = traced(recipe, config, true);
    partitioner::LocalPrograms applied = passes::applyStrategy(model, options);
    const auto file = PlanFile::fromBytes(passes::lowerToPlan(applied, options, {.replicasApart = recipe.seed % 2 == 1}),
                                          "the plan for GPUs");
    return fmt::format("{}", fmt::join(checkPlan(file->plan()), "\n"));
  } catch (const Error &error) {
    if (error.status == Status::User) // an op that GPUs have no kernel for
      return {};
    return error.what();
  }
}

/// A refusal of the prediction alone.
const std::string unreadMark = "a mark of an output that the loss does not read";

Result judge(const Recipe &recipe, const RunSettings &settings) {
  const TrainConfig config = configOf(recipe);
  const HashedData &data = static_cast<HashedData &>(*std::get<std::shared_ptr<Dataset>>(config.data));
  std::optional<GraphModule> model; // declared first: `applied` uses its context
  std::optional<partitioner::LocalPrograms> applied;
  std::optional<ForwardCases> forward;
  passes::CompileOptions options;
  try {
    const ResolvedOptions job = optionsOf(recipe, config);
    options = compileOptionsOf(job, settings.execute);
    model.emplace(traced(recipe, config, true));
    applied.emplace(passes::applyStrategy(*model, options));
  } catch (const Error &error) {
    return refusedOrFailed(recipe, error);
  }
  try {
    forward.emplace(ForwardCases{{recipe, config, passes::Purpose::Evaluation, settings.execute},
                                 {recipe, config, passes::Purpose::Prediction, settings.execute}});
  } catch (const Error &error) {
    // Training does not have the values that the loss does not read, nor their marks.
    if (error.status == Status::User && std::string(error.what()).find("elements cannot be split") != std::string::npos)
      return verdict(Verdict::Refused, unreadMark, error.what());
    return failed("an evaluation or prediction is refused: " + kindOf(error.what()), error.what());
  }
  if (const std::string text = differenceGivenBack(*applied, recipe, config, options); !text.empty())
    return failed("the plan's strategy, given back, is another", text);
  GraphModule plain = traced(recipe, config, false);
  passes::CompileOptions undivided = options;
  undivided.strategy = {};
  undivided.strategy.mesh = partitioner::parseMesh("dp=1");
  undivided.strategy.microbatches = recipe.microbatches;
  undivided.channelsLast = false;
  Whole whole(recipe, passes::step(plain.clone(), undivided), predictionStep(recipe, config, undivided), data);
  if (whole.combinesSamples() == applied->evalMixes.empty())
    return failed("the plan and the graph differ in whether evaluation combines samples", applied->evalMixes);
  if (const std::optional<bool> adds = whole.addsUp(whole.beginning()); adds == false && applied->evalMixes.empty())
    return failed("evaluation combines samples, and the plan does not say so", "");
  ir::Bounds inDouble = ir::Bounds::ofDouble([&] { return whole.run(); }, 3, recipe.layout == "nhwc" && recipe.winograd() != "never");
  if (const std::string text = trainedWithoutUse(plain, whole.beginning(), inDouble.exact); !text.empty())
    return failed("the graph trains a parameter that the loss does not use", text);
  // The gradients of several terms are divided by their weights on the way.
  bool exactOps = lossKind(recipe.loss).exact && recipe.targets() == 1 && recipe.precision == "fp32" &&
                  (recipe.optimizer == "sgd" || recipe.optimizer == "momentum") && recipe.clipNorm == 0;
  for (const Class &cls : recipe.classes) {
    for (const Node &node : cls.body.nodes)
      exactOps &= opKind(node.op).exact;
    for (const Part &member : cls.members)
      exactOps &= !layerKind(member.kind) || layerKind(member.kind)->exact;
  }
  std::vector<bool> exact(trainingSteps, false);
  if (exactOps)
    exact = exactSteps(whole, inDouble.exact);
  Result result;
  result.exact = exact[0];
  if (settings.differences && recipe.precision == "fp32" && !recipe.wholeNumbers && !stopsGradients(plain) &&
      inDouble.largest < 0x1p30)
    if (const std::string text = compareWithDifferences(recipe, plain, whole, inDouble); !text.empty())
      return failed("gradient of the interpreter differs from central differences", text);
  if (!options.strategy.recompute.empty()) {
    passes::CompileOptions again = undivided;
    again.strategy.recompute = options.strategy.recompute;
    Whole recomputed(recipe, passes::step(plain.clone(), again), predictionStep(recipe, config, undivided), data);
    if (const std::string text = compareRecomputed(recomputed, whole, inDouble); !text.empty())
      return failed("the graph with recomputation and noise differs from the graph", text);
  }
  try {
    if (const std::string text = runDistributed(recipe, *applied, *forward, whole, inDouble, exact); !text.empty())
      return failed("interpreted ranks differ from the graph" + lacking(text), text);
  } catch (const Error &error) {
    return failed("interpreted ranks: " + kindOf(error.what()), error.what());
  }
  std::shared_ptr<const PlanFile> file;
  try {
    file = PlanFile::fromBytes(passes::lowerToPlan(*applied, options), "the plan");
  } catch (const Error &error) {
    return failed("export: " + kindOf(error.what()), error.what());
  }
  if (const std::vector<std::string> errors = checkPlan(file->plan()); !errors.empty())
    return failed("the checker refuses the plan: " + kindOf(errors[0]), fmt::format("{}", fmt::join(errors, "\n")));
  try {
    for (ForwardCase *one : {&forward->evaluation, &forward->prediction})
      if (const std::vector<std::string> errors = one->defects(); !errors.empty())
        return failed("the checker refuses a plan without training: " + kindOf(errors[0]),
                      fmt::format("{}", fmt::join(errors, "\n")));
  } catch (const Error &error) {
    return failed("export of a plan without training: " + kindOf(error.what()), error.what());
  }
  if (!settings.execute)
    return result;
  if (const std::string text = defectsForGpu(recipe, config, options); !text.empty())
    return failed("the checker refuses the plan for GPUs: " + kindOf(text), text);
  result.executed = true;
  // Samples of noise in the element types alone may be too few if rounding is amplified, for example by several norms
  // of nearly equal elements.
  ir::Bounds inTypes = inDouble.inTypes({.addends = whole.sums()});
  try {
    const std::string text = execute(file, *forward, recipe, data, whole, inTypes, exact);
    // Sums with very large numbers lose small addends, in one order of additions and not in another.
    result.unbounded = !text.empty() && inDouble.largest > 0x1p24;
    if (!text.empty() && !result.unbounded)
      return failed("the executed plan differs from the graph" + lacking(text), text);
    if (const std::string odd = trainOnInvalidIndex(file, recipe); !odd.empty())
      return failed("an invalid index is not refused", odd);
    const CheckResult checked = checkPlanAgainstGraph(file, whole.graph(), data, trainingSteps, 1);
    if (!result.unbounded && !checked.difference.empty())
      return failed("check: " + kindOf(checked.difference), checked.difference);
  } catch (const Error &error) {
    return failed("execution: " + kindOf(error.what()), error.what());
  }
  return result;
}

} // namespace

std::vector<uint8_t> planOf(const Recipe &recipe) {
  const TrainConfig config = configOf(recipe);
  try {
    const ResolvedOptions job = optionsOf(recipe, config);
    const passes::CompileOptions options = compileOptionsOf(job, true);
    GraphModule model = traced(recipe, config, true);
    partitioner::LocalPrograms applied = passes::applyStrategy(model, options);
    return passes::lowerToPlan(applied, options);
  } catch (const Error &) {
    return {};
  }
}

TracedCase traceCase(const Recipe &recipe) {
  const TrainConfig config = configOf(recipe);
  const ResolvedOptions job = optionsOf(recipe, config);
  return {traced(recipe, config, true), compileOptionsOf(job, false)};
}

std::optional<TracedCase> tracedCase(const Recipe &recipe) {
  try {
    return traceCase(recipe);
  } catch (const Error &) {
    return std::nullopt;
  }
}

/// A case whose strategy a search finds. It may be refused only if the strategy that was drawn is, too.
static Result runSearched(const Recipe &recipe, const RunSettings &settings) {
  try {
    Result result = run(withFoundStrategy(recipe), settings);
    if (result.verdict == Verdict::Refused && result.kind != unreadMark)
      return failed("the strategy that a search found is refused", result.text);
    return result;
  } catch (const Error &error) {
    Recipe drawn = recipe;
    drawn.searched.clear();
    const Result result = run(drawn, settings);
    if (result.verdict != Verdict::Agrees)
      return result;
    return failed("a search refuses what has a plan: " + kindOf(error.what()), error.what());
  }
}

Result run(const Recipe &recipe, const RunSettings &settings) {
  if (!recipe.searched.empty() && recipe.found.empty())
    return runSearched(recipe, settings);
  try {
    return judge(recipe, settings);
  } catch (const Error &error) {
    if (error.status == Status::User)
      return refusedOrFailed(recipe, error);
    return failed("error: " + kindOf(error.what()), error.what());
  } catch (const std::exception &error) {
    return failed("exception: " + kindOf(error.what()), error.what());
  }
}

// ---- queries of the generator ---------------------------------------------------------------------------------------

bool takesEvalBatch(const Recipe &recipe) {
  try {
    traced(recipe, configOf(recipe), true);
    return true;
  } catch (const Error &) {
    return false;
  }
}

std::vector<Shape> shapesOfRoot(const Recipe &recipe) {
  const TrainConfig config = configOf(recipe);
  Instance root(recipe, 0, false);
  std::vector<Shape> shapes;
  Model model{&root,
              [&](std::span<const Tensor> in) {
                std::vector<Tensor> values(in.begin(), in.end());
                for (const Node &node : recipe.classes[0].body.nodes)
                  values.push_back(root.emit(node, values));
                shapes.clear();
                for (const Tensor value : values)
                  shapes.push_back(value.defined() && value.dtype() == DType::F32 ? value.shape() : Shape());
                return root.outputsOf(values);
              },
              "random", "{}"};
  traceModel(model, config, recipe.rows());
  return shapes;
}

/// Calls fn(value) for each value on which the model's results depend and, if it `trains`, new buffer values.
template <class F> static void forEachThatMatters(mlir::func::FuncOp forward, F fn, bool trains = true) {
  llvm::SmallVector<mlir::Value> work;
  for (mlir::OpOperand &result : forward.front().getTerminator()->getOpOperands())
    if (trains || ir::resultKind(forward, result.getOperandNumber()) != ir::SlotKind::Buffer)
      work.push_back(result.get());
  llvm::DenseSet<mlir::Value> seen;
  while (!work.empty()) {
    mlir::Value value = work.pop_back_val();
    if (!seen.insert(value).second)
      continue;
    fn(value);
    if (mlir::Operation *def = value.getDefiningOp())
      work.append(def->operand_begin(), def->operand_end());
  }
}

std::set<std::string> parametersThatMatter(const Recipe &recipe) {
  const GraphModule graph = traced(recipe, configOf(recipe), false);
  auto forward = llvm::cast<mlir::func::FuncOp>(graph.function("forward"));
  std::set<std::string> names;
  forEachThatMatters(forward, [&](mlir::Value value) {
    if (auto argument = llvm::dyn_cast<mlir::BlockArgument>(value))
      if (auto name = forward.getArgAttrOfType<mlir::StringAttr>(argument.getArgNumber(), ir::attr::name))
        names.insert(name.str());
  });
  return names;
}

bool marksThatMatterSplit(const Recipe &recipe, const std::string &axis) {
  return marksThatMatterSplit(traced(recipe, configOf(recipe), true), axis, true);
}

bool marksThatMatterSplit(const GraphModule &graph, const std::string &axis, bool trains) {
  passes::decompose(graph.module()); // the statistics of a batch norm do not depend on its weight
  passes::simplify(graph.module());  // removes marks without effect: where(x > mark(x), x, x) is x
  bool found = false;
  const auto visit = [&](mlir::Value value) {
    if (auto hint = value.getDefiningOp<ir::ShardHintOp>()) {
      std::string text;
      llvm::raw_string_ostream(text) << *hint;
      found |= text.find(axis) != std::string::npos;
    }
  };
  forEachThatMatters(llvm::cast<mlir::func::FuncOp>(graph.function("forward")), visit, trains);
  return found;
}

std::set<int64_t> stagesOfMarks(const Recipe &recipe) {
  const GraphModule graph = traced(recipe, configOf(recipe), true);
  std::set<int64_t> stages;
  for (mlir::Operation &op : llvm::cast<mlir::func::FuncOp>(graph.function("forward")).front()) {
    auto mark = op.getAttrOfType<mlir::IntegerAttr>(ir::attr::stage);
    stages.insert(mark ? mark.getInt() : 0);
  }
  return stages;
}

std::set<int64_t> stagesThatReadParameters(const Recipe &recipe) {
  const GraphModule graph = traced(recipe, configOf(recipe), true);
  std::set<int64_t> stages;
  for (mlir::Operation &op : llvm::cast<mlir::func::FuncOp>(graph.function("forward")).front())
    for (mlir::Value operand : op.getOperands())
      if (auto argument = llvm::dyn_cast<mlir::BlockArgument>(operand);
          argument && ir::argumentKind(argument) == ir::SlotKind::Parameter) {
        auto mark = op.getAttrOfType<mlir::IntegerAttr>(ir::attr::stage);
        stages.insert(mark ? mark.getInt() : 0);
      }
  return stages;
}

std::vector<ModelLayer> layersOfModel(const Recipe &recipe, bool marks) {
  const GraphModule graph = traced(recipe, configOf(recipe), marks);
  auto forward = llvm::cast<mlir::func::FuncOp>(graph.function("forward"));
  std::vector<ModelLayer> layers;
  for (const partitioner::Layer &layer : partitioner::layersOf(forward, partitioner::layerNames(forward)))
    layers.push_back({layer.path, layer.parameters});
  return layers;
}

/// Adds 1 to the numbers of all values from `from` on.
static void shift(Body &body, int from) {
  for (Node &node : body.nodes)
    for (int &value : node.in)
      value += value >= from;
  body.result += body.result >= from;
  body.second += body.second >= from;
  for (int &value : body.others)
    value += value >= from;
}

void insertMark(Body &body, int value, const std::vector<std::string> &words) {
  const int place = std::max(0, value - body.inputs + 1), made = body.inputs + place;
  shift(body, made);
  for (size_t n = static_cast<size_t>(place); n < body.nodes.size(); ++n)
    for (int &in : body.nodes[n].in)
      in = in == value ? made : in;
  if (body.result == value)
    body.result = made;
  if (body.second == value)
    body.second = made;
  std::replace(body.others.begin(), body.others.end(), value, made);
  body.nodes.insert(body.nodes.begin() + place, {"withSharding", {value}, {}, {}, words});
}

void insertStage(Body &body, int64_t place, int64_t k) {
  shift(body, body.inputs + static_cast<int>(place));
  body.nodes.insert(body.nodes.begin() + place, {"stage", {}, {k}});
}

} // namespace cleave::random_models
