// Measures splits of a reduced model, and compiles the finalists.
#include "passes/search/StrategySearch.h"

#include "partitioner/annotate/MixedRows.h"
#include "partitioner/cluster/Cluster.h"
#include "partitioner/cost/Constants.h"
#include "partitioner/search/SolveLayouts.h"
#include "partitioner/simulate/Memory.h"
#include "partitioner/simulate/Simulate.h"
#include "partitioner/solver/ReadProblem.h"
#include "partitioner/stages/DistinctLayers.h"
#include "passes/pipeline/Pipeline.h"
#include "runtime/base/AtomicFile.h"
#include "runtime/base/Error.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <set>
#include <tuple>

namespace cleave::passes {
namespace {

using partitioner::Candidate;
using partitioner::Cluster;
using partitioner::LayerOutline;
using partitioner::PlanCosts;
using partitioner::PlanGroup;
using partitioner::SplitChoice;
using partitioner::Strategy;

class StrategySearch {
public:
  StrategySearch(const Trace &trace, const CompileOptions &options, const partitioner::SpaceRequest &request)
      : trace(trace), options(options),
        cluster(Cluster::parse(options.cluster, "the cluster")), input{.request = request} {}

  FoundStrategy run() {
    readModel();
    const partitioner::DeviceKind &kind = cluster.devices.front();
    input.capacity = kind.memoryBytes() - static_cast<double>(partitioner::reservedBytes(kind));
    input.secondsPerByte = [&](const PlanGroup &group) { return secondsPerByte(group); };
    input.measure = [&](const SplitChoice &split) { return measure(split); };
    input.least = leastSeconds();
    partitioner::SearchOutcome outcome = partitioner::searchPlans(input);
    addSolved(outcome);
    return fastest(outcome);
  }

private:
  struct Reduced {
    GraphModule model;
    std::vector<LayerOutline> layers;
  };

  /// The model with `rows` rows and every kind of layer.
  Reduced &reduced(int64_t rows) {
    auto [found, fresh] = models.try_emplace(rows);
    if (fresh) {
      GraphModule whole = trace(rows, rows);
      found->second.model = whole.clone();
      found->second.layers = partitioner::keepDistinctLayers(found->second.model.module());
      if (found->second.layers.empty()) {
        found->second.model = std::move(whole);
        found->second.layers = partitioner::outlineOf(found->second.model.module());
      }
    }
    return found->second;
  }

  void readModel() {
    const int64_t rows = std::min<int64_t>(options.batch, 2);
    const Reduced &model = reduced(rows);
    std::set<std::string> kept;
    for (const LayerOutline &layer : model.layers) {
      modelLayers.push_back({layer.path, layer.kept, layer.kind});
      input.layers.push_back({layer.path, layer.kept, layer.parameters,
                              layer.sentBytes / static_cast<double>(rows) * (options.precision.level > 0 ? 0.5 : 1)});
      marked |= layer.mark >= 0;
      if (!layer.path.empty())
        lastLayer = layer.kept, kept.insert(layer.kept);
    }
    names = partitioner::LayerNames({}, std::move(kept));
    input.request.mixesRows = mixesRows(rows);
    input.request.layers = std::ranges::count(input.layers, true, &partitioner::SearchLayer::parameters);
  }

  /// Whether the model combines the samples of a microbatch, also where it means to: the number of microbatches is then
  /// a part of what it computes.
  bool mixesRows(int64_t rows) {
    CompileOptions whole = without(rows);
    whole.evalBatch = 0;
    whole.strategy = strategyOf({.rows = rows}, 1, 1);
    const GraphModule made = step(reduced(rows).model.clone(), whole);
    return partitioner::opThatMixesRows(llvm::cast<mlir::func::FuncOp>(made.function("train")), false);
  }

  std::string layerOf(const std::string &path) const {
    if (path == "loss")
      return lastLayer;
    return names.of(path);
  }

  CompileOptions without(int64_t batch) const {
    CompileOptions trial = options;
    trial.batch = batch;
    trial.code = false;
    trial.printAfter.clear();
    return trial;
  }

  static constexpr int64_t trialMicrobatches = 3;

  const PlanCosts *measure(const SplitChoice &split, bool byOp = false) {
    constexpr double worthwhile = 0.9999; // of the default shardings' cost
    const partitioner::SolvedLayouts *layouts = byOp ? solve(split) : nullptr;
    if (layouts && static_cast<double>(layouts->cost) > worthwhile * static_cast<double>(layouts->defaultCost))
      return nullptr;
    auto [found, fresh] = (byOp ? measuredSolved : measured).try_emplace(split);
    if (!fresh || (byOp && !layouts))
      return found->second ? &*found->second : nullptr;
    CompileOptions trial = without(split.rows * trialMicrobatches);
    trial.evalBatch = 0;
    trial.strategy = strategyOf(split, 1, trialMicrobatches);
    if (byOp)
      addRules(*layouts, trial.strategy);
    try {
      const auto file = PlanFile::fromBytes(compile(reduced(split.rows).model.clone(), trial), "a trial plan");
      found->second =
          partitioner::measureLayers(file->plan(), cluster, [&](const std::string &path) { return layerOf(path); });
    } catch (const Error &error) {
      if (error.status != Status::User)
        throw;
    }
    return found->second ? &*found->second : nullptr;
  }

  /// The shardings of a split by the solver; null if it found none. They are the same for every stage of ZeRO, which
  /// divides what is stored.
  const partitioner::SolvedLayouts *solve(SplitChoice split) {
    split.zero = 0;
    auto [found, fresh] = solved.try_emplace(split);
    if (!fresh)
      return found->second ? &*found->second : nullptr;
    CompileOptions trial = without(split.rows * trialMicrobatches);
    trial.evalBatch = 0;
    trial.strategy = strategyOf(split, 1, trialMicrobatches);
    partitioner::ShardingProblem problem = shardingProblem(reduced(split.rows).model.clone(), trial);
    const bool tf32 = options.training && options.training->precision == plan::Precision::Tf32;
    found->second = partitioner::solveLayouts(
        problem,
        {.name = nameOf(split),
         .cluster = cluster,
         .half = options.precision.type == Precision::Type::Bf16 ? partitioner::Rate::Bf16 : partitioner::Rate::Fp16,
         .single = tf32 ? partitioner::Rate::Tf32 : partitioner::Rate::Fp32,
         .microbatches = options.batch / split.rows,
         .hides = options.backend == Target::Kind::Cuda,
         .layers = modelLayers,
         .layerOf = [&](const std::string &path) { return layerOf(path); }});
    if (!options.dumpProblems.empty())
      dump(*found->second);
    if (found->second->solution.assignment.empty())
      found->second.reset();
    return found->second ? &*found->second : nullptr;
  }

  static void addRules(const partitioner::SolvedLayouts &layouts, Strategy &strategy) {
    strategy.shard = layouts.shard;
    strategy.ops = layouts.ops;
  }

  static std::string nameOf(const SplitChoice &split) {
    return fmt::format("dp{}-tp{}-rows{}-recompute-{}", split.data, split.tensor, split.rows,
                       partitioner::text(split.recompute));
  }

  void dump(const partitioner::SolvedLayouts &layouts) const {
    const std::string path = options.dumpProblems + "/" + layouts.problem.name;
    const auto write = [](const std::string &file, const std::string &text) {
      AtomicFile out(file);
      out.write(text.data(), text.size());
      out.commit();
    };
    makeFolders(options.dumpProblems, "--dump-problems");
    write(path + ".json", partitioner::problemText(layouts.problem));
    write(path + ".solution.json", partitioner::solutionText(layouts.solution, 0));
  }

  Strategy strategyOf(const SplitChoice &split, int64_t pipeline, int64_t microbatches) const {
    Strategy strategy = input.request.pins.decided();
    partitioner::setAxis(strategy.mesh, axisName(AxisRole::Data), split.data, "search");
    partitioner::setAxis(strategy.mesh, axisName(AxisRole::Tensor), split.tensor, "search");
    partitioner::setAxis(strategy.mesh, axisName(AxisRole::Pipeline), pipeline, "search");
    strategy.microbatches = microbatches;
    strategy.recompute = {{partitioner::RecomputeRule::everyLayer, split.recompute, "search"}};
    strategy.zero = split.zero;
    strategy.sequence = split.sequence ? axisName(AxisRole::Tensor) : "";
    return strategy;
  }

  /// Of the products of an iteration at the peaks of all devices: a backward pass has twice the operations of a forward
  /// pass.
  double leastSeconds() const {
    double flops = 0, peak = 0;
    for (const LayerOutline &layer : models.begin()->second.layers)
      flops += 3 * layer.flops / static_cast<double>(models.begin()->first);
    for (const Cluster::Place &place : cluster.places(input.request.devices))
      peak += std::ranges::max(cluster.devices[place.kind].peakTflops) * 1e12;
    return peak > 0 ? flops * static_cast<double>(options.batch) / peak : 0;
  }

  double secondsPerByte(const PlanGroup &group) const {
    const partitioner::DeviceConstants &constants = partitioner::constantsOf(cluster.devices.front());
    const int64_t ranks = group.split.data * group.split.tensor, perNode = cluster.nodes.front().devicesPerNode();
    const auto &inside = cluster.nodes.front().inside;
    if (inside && (!cluster.network || 2 * ranks <= perNode))
      return 1 / (inside->bytesPerSecond() * constants.messageFraction);
    if (!cluster.network)
      return 0;
    const auto senders = static_cast<double>(std::min(ranks, perNode));
    return 1 / (constants.networkFraction *
                std::min(cluster.network->bytesPerSecond() / senders, constants.deviceNetworkBytesPerSecond));
  }

  Strategy strategyOf(const Candidate &candidate) {
    Strategy strategy = strategyOf(candidate.group.split, candidate.group.pipeline, candidate.group.microbatches);
    strategy.schedule = candidate.schedule.name;
    strategy.scheduleOrigin = "search";
    if (candidate.byOp)
      addRules(*solve(candidate.group.split), strategy);
    strategy.chunks = candidate.schedule.chunks;
    if (!marked && strategy.stageCount() > 1) {
      strategy.stages = stagesOf(candidate);
      strategy.stagesOrigin = "search";
    }
    return strategy;
  }

  std::vector<std::vector<std::string>> stagesOf(const Candidate &candidate) {
    const std::vector<size_t> begins =
        partitioner::cutStages(input.layers, *measure(candidate.group.split),
                               static_cast<size_t>(candidate.group.pipeline * candidate.schedule.chunks));
    std::vector<std::vector<std::string>> stages(begins.size());
    std::map<std::string, int64_t> uses;
    size_t stage = 0;
    for (size_t i = 0; i < input.layers.size(); ++i) {
      const bool first = stage + 1 < stages.size() && i == begins[stage + 1];
      stage += first;
      const std::string &path = input.layers[i].path;
      if (const int64_t use = path.empty() ? 0 : ++uses[path]; use == 1 || (use > 1 && first))
        stages[stage].push_back(partitioner::LayerUse{path, use}.str());
    }
    return stages;
  }

  /// Adds plans with the shardings that the solver finds: for the splits of the best plans, and for ranks that all
  /// split the rows, of which the solver may make any other split.
  void addSolved(partitioner::SearchOutcome &outcome) {
    if (input.request.pins.sequence && !input.request.pins.sequence->empty())
      return;                  // the solver chooses the layouts of activations itself
    constexpr size_t most = 6; // splits
    std::set<SplitChoice> splits;
    std::vector<Candidate> added;
    std::set<std::tuple<SplitChoice, int64_t, std::string, int64_t>> tried;
    const auto tryPlan = [&](PlanGroup group, const partitioner::ScheduleChoice &schedule) {
      group.split.sequence = false;
      const bool fresh = tried.insert({group.split, group.pipeline, schedule.name, schedule.chunks}).second;
      const PlanCosts *use = fresh ? measure(group.split, true) : nullptr;
      if (!use)
        return;
      const partitioner::Estimate estimate =
          partitioner::Estimator(input.layers, group, *use, secondsPerByte(group)).of(schedule);
      if (estimate.bytes > input.capacity)
        return;
      outcome.lower = std::min(outcome.lower, estimate.lower);
      added.push_back({group, schedule, estimate, true});
    };
    for (const Candidate &candidate : outcome.candidates) {
      SplitChoice split = candidate.group.split;
      split.sequence = false;
      if (splits.size() < most || splits.contains(split)) {
        splits.insert(split);
        tryPlan(candidate.group, candidate.schedule);
      }
    }
    size_t more = 2; // of those with the most rows
    for (const PlanGroup &group : partitioner::groupsOf(input.request))
      if (more > 0 && group.pipeline == 1 && group.split.tensor == 1 && group.split.zero == 0 &&
          splits.insert(group.split).second) {
        --more;
        for (const partitioner::ScheduleChoice &schedule : partitioner::schedulesOf(input.request, group))
          tryPlan(group, schedule);
      }
    outcome.candidates.insert(outcome.candidates.end(), added.begin(), added.end());
    std::ranges::stable_sort(outcome.candidates, {}, [](const Candidate &one) { return one.estimate.seconds; });
  }

  /// Compiles and simulates the candidates that are estimated to be the fastest.
  FoundStrategy fastest(const partitioner::SearchOutcome &outcome) {
    FoundStrategy best;
    auto record = std::make_shared<plan::SearchT>();
    std::string problem;
    for (const Candidate &candidate : finalistsOf(outcome)) {
      CompileOptions trial = without(options.batch);
      trial.strategy = strategyOf(candidate);
      const auto file = compiled(trial, candidate.byOp);
      ++record->compiled;
      if (!file)
        continue;
      if (const auto lacks = partitioner::memoryProblem(file->plan(), cluster)) {
        problem = *lacks;
        continue;
      }
      const double step = partitioner::simulate(file->plan(), cluster).stepSeconds;
      if (record->step > 0 && step >= record->step)
        continue;
      best.strategy = trial.strategy;
      record->step = step, record->estimate = candidate.estimate.seconds;
    }
    if (record->step == 0)
      throw environmentError(noneFits(outcome, problem));
    describe(outcome, *record);
    best.record = std::move(record);
    return best;
  }

  /// Null if ops of the whole model cannot follow what was solved for the reduced one.
  std::shared_ptr<const PlanFile> compiled(const CompileOptions &trial, bool byOp) {
    const int64_t microbatches = trial.strategy.microbatches;
    const int64_t evalBatch = options.evalBatch ? options.evalBatch : options.batch;
    try {
      return PlanFile::fromBytes(compile(trace(options.batch / microbatches, evalBatch / microbatches), trial),
                                 "a finalist");
    } catch (const Error &error) {
      if (!byOp || error.status != Status::User)
        throw;
    }
    return nullptr;
  }

  /// The fastest candidates. At most three have the same mesh if there are others, and at most two differ only in their
  /// schedule, so that an error of the estimate matters less.
  static std::vector<Candidate> finalistsOf(const partitioner::SearchOutcome &outcome) {
    constexpr size_t most = 4, mostAlike = 2, mostOfMesh = 3;
    std::map<std::tuple<int64_t, int64_t, int64_t>, size_t> sameMesh;
    std::map<std::pair<SplitChoice, bool>, size_t> sameSplit;
    std::vector<const Candidate *> first, others;
    const Candidate *before = nullptr;
    for (const Candidate &candidate : outcome.candidates) {
      const PlanGroup &group = candidate.group;
      // Where there is nothing to recompute, its kinds give the same plan.
      const Candidate *last = std::exchange(before, &candidate);
      if (last && last->group.pipeline == group.pipeline && last->group.split.data == group.split.data &&
          last->byOp == candidate.byOp && last->estimate.seconds == candidate.estimate.seconds &&
          last->estimate.bytes == candidate.estimate.bytes && last->schedule.name == candidate.schedule.name)
        continue;
      if (++sameSplit[{group.split, candidate.byOp}] > mostAlike)
        continue;
      const bool differs = ++sameMesh[{group.split.data, group.split.tensor, group.pipeline}] <= mostOfMesh;
      (differs ? first : others).push_back(&candidate);
    }
    first.insert(first.end(), others.begin(), others.end());
    std::vector<Candidate> finalists;
    for (size_t i = 0; i < std::min(most, first.size()); ++i)
      finalists.push_back(*first[i]);
    // One at least has the default shardings, which every model can follow.
    const auto usual = std::ranges::find(outcome.candidates, false, &Candidate::byOp);
    if (usual != outcome.candidates.end() && std::ranges::find(finalists, false, &Candidate::byOp) == finalists.end())
      finalists.back() = *usual;
    return finalists;
  }

  void describe(const partitioner::SearchOutcome &outcome, plan::SearchT &record) const {
    const partitioner::SearchCounts &counts = outcome.counts;
    record.lower = std::min(outcome.lower, record.step);
    record.least = input.least;
    record.total = static_cast<uint64_t>(counts.total);
    record.evaluated = static_cast<uint64_t>(counts.evaluated);
    record.pruned_by_bound = static_cast<uint64_t>(counts.prunedByBound);
    record.pruned_by_memory = static_cast<uint64_t>(counts.prunedByMemory);
    record.refused = static_cast<uint64_t>(counts.refused);
    record.stopped_early = outcome.stoppedEarly;
  }

  std::string noneFits(const partitioner::SearchOutcome &outcome, const std::string &problem) const {
    constexpr double gibibyte = 1 << 30;
    const std::string ranks = fmt::format("{} devices of cluster {}", input.request.devices, cluster.name);
    if (!problem.empty())
      return fmt::format("search: no strategy fits the memory of {}: {}", ranks, problem);
    if (outcome.counts.prunedByMemory == 0)
      return fmt::format("search: the model cannot be split over {} as requested ({} plans of {} refused)", ranks,
                         outcome.counts.refused, outcome.counts.total);
    return fmt::format(
        "search: no strategy fits the memory of {}: the one that needs least takes {:.2f} GiB on a rank, "
        "its device has {:.2f} GiB for it; more devices, a smaller batch or lower precision would help",
        ranks, outcome.leastBytes / gibibyte, input.capacity / gibibyte);
  }

  const Trace &trace;
  const CompileOptions &options;
  const Cluster cluster;
  partitioner::SearchInput input;
  std::map<int64_t, Reduced> models; ///< by rows
  std::map<SplitChoice, std::optional<PlanCosts>> measured, measuredSolved;
  std::map<SplitChoice, std::optional<partitioner::SolvedLayouts>> solved;
  std::vector<partitioner::ModelLayer> modelLayers;
  partitioner::LayerNames names{{}};
  std::string lastLayer;
  bool marked = false;
};

} // namespace

FoundStrategy searchStrategy(const Trace &trace, const CompileOptions &options,
                             const partitioner::SpaceRequest &request) {
  return StrategySearch(trace, options, request).run();
}

} // namespace cleave::passes
