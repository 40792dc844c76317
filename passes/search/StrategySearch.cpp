// Measures splits of a reduced model, and compiles the finalists.
#include "passes/search/StrategySearch.h"

#include "ir/graph/Graph.h"
#include "partitioner/annotate/AnnotateStep.h"
#include "partitioner/annotate/MixedRows.h"
#include "partitioner/cluster/Cluster.h"
#include "partitioner/cost/Constants.h"
#include "partitioner/cost/ScatterGather.h"
#include "partitioner/search/Neighbours.h"
#include "partitioner/search/Sites.h"
#include "partitioner/search/SolveLayouts.h"
#include "partitioner/simulate/Memory.h"
#include "partitioner/simulate/Simulate.h"
#include "partitioner/strategy/DecisionTable.h"
#include "passes/pipeline/Pipeline.h"
#include "passes/precision/Precision.h"
#include "passes/rewrite/Parallel.h"
#include "passes/search/NoneFits.h"
#include "passes/search/SearchCache.h"
#include "runtime/base/Error.h"
#include "runtime/base/Stopped.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <set>
#include <span>
#include <thread>
#include <tuple>

namespace cleave::passes {

std::shared_ptr<SearchCache> newSearchCache() { return std::make_shared<SearchCache>(); }

namespace {

bool neverStops() { return false; }

using partitioner::Candidate;
using partitioner::Cluster;
using partitioner::Decisions;
using partitioner::LayerOutline;
using partitioner::Neighbour;
using partitioner::PlanGroup;
using partitioner::PlanRow;
using partitioner::Site;
using partitioner::SiteCosts;
using partitioner::SplitChoice;

class StrategySearch {
public:
  /// `space`: what is open.
  StrategySearch(const Trace &trace, const PlanRequest &request, const partitioner::SpaceRequest &space, Stops stops)
      : trace(trace), options(request), cluster(*clusterOf(request)), sites(cluster, space.devices),
        pinned(space.pins.decided()), input{.request = space},
        cache(request.searchCache ? request.searchCache : newSearchCache()) {
    input.stops = stops ? std::move(stops) : neverStops;
    Decisions pins; // what the models and the trial plans depend on, besides what the users of a cache have in common
    pins.shard = pinned.shard, pins.ops = pinned.ops, pins.recompute = pinned.recompute, pins.stages = pinned.stages;
    pins.scatterGather = pinned.scatterGather;
    const bool fused = std::ranges::all_of(cluster.devices, partitioner::attentionIsFused);
    if (std::string key = fmt::format("{} {} {} {}", text(options.backend), options.threads, fused, pins.toToml());
        cache->workers.empty() || cache->key != key) {
      *cache = SearchCache{.key = std::move(key)};
      cache->workers.resize(std::clamp(std::thread::hardware_concurrency(), 1u, mostWorkers));
    }
  }

  FoundStrategy run() {
    partitioner::SearchOutcome outcome{.stoppedEarly = true};
    try {
      prepare();
    } catch (const Stopped &) {
      throw noneFits(outcome);
    }
    for (size_t before = 0;; before = excluded.size()) { // until a finalist can be made, and fits
      outcome = partitioner::searchPlans(input);
      addSolved(outcome);
      if (FoundStrategy found = fastest(outcome); found.record)
        return found;
      if (excluded.size() == before || outcome.stoppedEarly)
        throw noneFits(outcome);
    }
  }

  /// See the header.
  std::vector<Alternative> alternativesTo(const Decisions &chosen) {
    prepare();
    std::vector<Neighbour> others = partitioner::neighboursOf(
        input.request, partitioner::groupOf(chosen, options.batch), {chosen.schedule, chosen.chunks});
    if (input.prepare) {
      std::vector<std::pair<SplitChoice, Site>> wanted;
      for (const Neighbour &other : others)
        for (const Site site : input.positions(other.plan.group))
          wanted.emplace_back(other.plan.group.split, site);
      input.prepare(wanted);
    }
    std::erase_if(others, [&](Neighbour &other) {
      auto plan = partitioner::estimatePlan(input, other.plan.group, other.plan.schedule);
      if (!plan || plan->begins.empty())
        return true;
      other.plan = std::move(*plan);
      return false;
    });
    return simulated(partitioner::mostInteresting(std::move(others)));
  }

  std::optional<EstimatedPlan> estimate(const PlanGroup &group, const partitioner::ScheduleChoice &schedule) {
    if (input.layers.empty())
      prepare();
    const auto plan = partitioner::estimatePlan(input, group, schedule);
    if (!plan || plan->begins.empty())
      return std::nullopt;
    return EstimatedPlan{strategyOf(*plan), plan->estimate};
  }

private:
  static constexpr unsigned mostWorkers = 4;
  static constexpr uint32_t compiledAtMost = 4; ///< plans of the whole model, if one of them fits
  static constexpr size_t compiledTogether = 2; ///< of them at the same time
  /// A plan at most this part above the bound ends the compilations, if no estimate was longer by more.
  static constexpr double nearBound = 0.01;

  void prepare() {
    readModel();
    input.request.orders = [&](const Mesh &mesh) { return sites.orders(mesh); };
    input.sendSeconds = [&](const PlanGroup &group, int64_t from, int64_t to, double bytes) {
      return sites.sendSeconds(group, from, to, bytes);
    };
    input.sumSeconds = [&](const PlanGroup &group, double bytes, bool scatters) {
      return sites.sumSeconds(group, bytes, scatters);
    };
    input.metricsSeconds = sites.metricsSeconds();
    input.tiedSeconds = [&](const PlanGroup &group, const std::vector<int64_t> &positions, double bytes) {
      return sites.tiedSeconds(group, positions, bytes);
    };
    input.sumShare = options.precision.level > 0 && options.precision.reduce != Precision::Type::Fp32 ? 0.5 : 1;
    input.gatherShare = options.precision.level > 0 ? 0.5 : 1;
    input.sharedLinks = [&](const PlanGroup &group) -> const partitioner::SharedLinks & {
      return sites.sharedLinks(group);
    };
    input.positions = [&](const PlanGroup &group) { return sites.positions(group); };
    input.parts = [&](const PlanGroup &group, int64_t tensor) { return sites.parts(group, tensor); };
    input.takesRows = [&](int64_t rows) { return reduced(rows) != nullptr; };
    input.measure = [&](const SplitChoice &split, Site site) { return measure(split, site); };
    input.trialOf = [&](const SplitChoice &split) { return trialSplit(split); };
    if (cache->workers.size() > 1)
      input.prepare = [&](const auto &wanted) { measureTogether(wanted); };
    input.least = leastSeconds();
    input.excludes = [&](const PlanGroup &group, const partitioner::ScheduleChoice &schedule) {
      return excluded.contains(partitioner::rowOf(group, schedule));
    };
  }

  /// Calls `make`; the message if the model cannot be made or split so, else nothing.
  static std::string unlessRefused(const std::function<void()> &make) {
    try {
      make();
    } catch (const Error &error) {
      if (error.status != Status::User)
        throw;
      return error.what();
    }
    return {};
  }

  /// The model with `rows` rows and every kind of layer; null if its code does not allow so many rows.
  ReducedModel *reduced(int64_t rows, size_t worker = 0) {
    auto [found, fresh] = cache->workers[worker].try_emplace(rows);
    if (fresh)
      unlessRefused([&] {
        GraphModule whole = trace(rows, rows), kept = whole.clone();
        std::vector<LayerOutline> layers = partitioner::keepDistinctLayers(kept.module(), pinned);
        if (layers.empty())
          layers = partitioner::outlineOf(whole.module(), pinned), kept = std::move(whole);
        found->second = ReducedModel{std::move(kept), std::move(layers)};
      });
    return found->second ? &*found->second : nullptr;
  }

  /// Few rows for what does not depend on them: those of a microbatch if the model's code fixes their number.
  int64_t fewRows() {
    const int64_t few = std::min<int64_t>(options.batch, 2);
    return reduced(few) ? few : options.batch / input.request.pins.microbatches.value_or(1);
  }

  void readModel() {
    const int64_t rows = fewRows();
    GraphModule typed = trace(rows, rows);
    readPins(typed);
    const ReducedModel &model = *reduced(rows);
    std::set<std::string> kept, seen;
    for (const LayerOutline &layer : model.layers)
      hasLists |= partitioner::isListMember(layer.path);
    applyPrecision(typed.module(), options.precision.type, options.precision.level);
    const std::vector<LayerOutline> sent = partitioner::outlineOf(typed.module(), pinned);
    for (size_t i = 0; i < model.layers.size(); ++i) {
      const LayerOutline &layer = model.layers[i];
      modelLayers.push_back({layer.path, layer.kept, layer.kind});
      input.layers.push_back({layer.path, layer.kept, layer.parameters, sent[i].sentBytes / static_cast<double>(rows),
                              !layer.path.empty() && (!hasLists || partitioner::isListMember(layer.path)) &&
                                  seen.insert(layer.path).second,
                              layer.tiedTo, layer.tiedShare});
      if (!layer.path.empty()) {
        lastLayer = layer.kept;
        if (kept.insert(layer.kept).second)
          keptLayers.push_back(layer.kept);
      }
    }
    names = partitioner::LayerNames({}, std::move(kept));
    input.request.mixesRows = mixesRows(rows);
    // What marks or rules split over axis dp, or what an op does with the rows of all ranks, depends on its size.
    alikeAlongData = !input.request.mixesRows && !marked && pinned.shard.empty() && pinned.ops.empty();
    input.request.layers = std::ranges::count(input.layers, true, &partitioner::SearchLayer::parameters);
  }

  /// Refuses pins that do not suit the model, and finds the stages that are decided: by a file, or by the code.
  void readPins(const GraphModule &whole) {
    auto forward = llvm::cast<mlir::func::FuncOp>(whole.function("forward"));
    partitioner::checkRules(forward, pinned);
    marked = !forward.getOps<ir::ShardHintOp>().empty();
    pinnedText = largestPinned(forward, pinned);
    input.begins = partitioner::pinnedBegins(whole.module(), pinned);
    input.request.stages = std::ssize(pinned.stages.empty() ? input.begins : std::vector<size_t>(pinned.stages.size()));
    input.request.oneStage = pinned.stages.empty();
  }

  /// Whether the model combines the samples of a microbatch, also where it means to: the number of microbatches is then
  /// a part of what it computes.
  bool mixesRows(int64_t rows) {
    CompileOptions whole = without(rows);
    whole.evalBatch = 0;
    whole.strategy = strategyOf({.rows = rows}, 1, 1);
    const GraphModule made = step(reduced(rows)->model.clone(), whole);
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
  passes::CompileContext context() const { return {.stops = input.stops, .kernelCosts = cache->kernelCosts}; }

  /// The split whose trial plan has the costs of `split`: one of two ranks along axis dp tells those of more, where
  /// every rank has as many rows, and the layers do the same whatever the axis' size.
  SplitChoice trialSplit(const SplitChoice &split) {
    constexpr int64_t few = 2; // ranks
    SplitChoice trial = split;
    if (split.data > few && split.rows % split.data == 0)
      trial.data = few, trial.rows = few * split.rowsOfRank();
    return alikeAlongData && reduced(trial.rows) ? trial : split;
  }
  TrialChoice trialChoice(const SplitChoice &split) {
    const auto [apart, fresh] = replicasApart.try_emplace({split.data, split.tensor});
    if (fresh)
      apart->second = partitioner::replicasApart(strategyOf(split, 1, 1).mesh, cluster);
    return {trialSplit(split), apart->second};
  }

  const SiteCosts *measure(const SplitChoice &split, Site site) {
    if (const auto found = measured.find({split, site}); found != measured.end())
      return found->second ? &*found->second : nullptr;
    const TrialChoice compiled = trialChoice(split);
    auto trial = cache->trials.find(compiled);
    if (trial == cache->trials.end())
      trial = cache->trials.emplace(compiled, trialOf(compiled, reduced(compiled.split.rows))).first;
    const auto found = measured.try_emplace({split, site}).first;
    if (trial->second)
      found->second = costsAt(site, *trial->second, split == compiled.split ? 0 : split.data);
    if (sites.oneSite() && !options.searchCache && !alikeAlongData)
      cache->trials.erase(trial); // no other site, split or search needs it
    return found->second ? &*found->second : nullptr;
  }

  /// The costs of the layers in a trial plan whose ranks lie at a site. `dataRanks`: see measureLayers.
  SiteCosts costsAt(Site site, const PlanFile &trial, int64_t dataRanks = 0) const {
    if (sites.networkShare(site) == 1)
      return partitioner::measureLayers(trial.plan(), cluster, sites.devices(site), dataRanks);
    Cluster shared = cluster;
    shared.network->gbPerS *= sites.networkShare(site);
    return partitioner::measureLayers(trial.plan(), shared, sites.devices(site), dataRanks);
  }

  /// Compiles the trial plans of several splits at the same time. Each worker has models of its own, because an MLIR
  /// context serves one compilation at a time; they are traced here, because tracing runs the user's code.
  void measureTogether(const std::vector<std::pair<SplitChoice, Site>> &wanted) {
    std::vector<TrialChoice> splits;
    for (const auto &[split, site] : wanted)
      if (const TrialChoice trial = trialChoice(split);
          !measured.contains({split, site}) && !cache->trials.contains(trial) && !llvm::is_contained(splits, trial))
        splits.push_back(trial);
    std::vector<std::shared_ptr<const PlanFile>> files(splits.size());
    std::vector<ReducedModel *> models;
    for (size_t i = 0; i < splits.size(); ++i)
      models.push_back(reduced(splits[i].split.rows, i % cache->workers.size()));
    onThreads(std::min(cache->workers.size(), splits.size()), [&](size_t worker) {
      for (size_t i = worker; i < splits.size(); i += cache->workers.size())
        files[i] = trialOf(splits[i], models[i]);
    });
    for (size_t i = 0; i < splits.size(); ++i)
      cache->trials.emplace(splits[i], std::move(files[i]));
    for (const auto &[split, site] : wanted)
      measure(split, site);
  }

  /// The same with the shardings that the solver found; null if in its costs they are no better than the default ones.
  const SiteCosts *measureSolved(const SplitChoice &split, Site site) {
    constexpr double worthwhile = 0.9999; // of the default shardings' cost
    const partitioner::SolvedLayouts *layouts = solve(split);
    if (!layouts || static_cast<double>(layouts->cost) > worthwhile * static_cast<double>(layouts->defaultCost))
      return nullptr;
    auto [found, fresh] = measuredSolved.try_emplace({split, site});
    if (fresh)
      if (const auto trial = trialOf({split, trialChoice(split).replicasApart}, reduced(split.rows), layouts))
        found->second = costsAt(site, *trial);
    return found->second ? &*found->second : nullptr;
  }

  CompileOptions trialOptions(const SplitChoice &split) const {
    constexpr int64_t microbatches = 3;
    CompileOptions trial = without(split.rows * microbatches);
    trial.evalBatch = 0;
    trial.strategy = strategyOf(split, 1, microbatches);
    trial.strategy.stages = {keptLayers}; // so that the plan's layers are those
    return trial;
  }

  /// The reduced model's plan of one stage; null if it cannot be split so, or if there is no model with these rows.
  std::shared_ptr<const PlanFile> trialOf(const TrialChoice &choice, const ReducedModel *model,
                                          const partitioner::SolvedLayouts *layouts = nullptr) const {
    CompileOptions trial = trialOptions(choice.split);
    passes::CompileContext costs = context();
    costs.trial = true, costs.replicasApart = choice.replicasApart;
    if (layouts)
      addRules(*layouts, trial.strategy);
    std::shared_ptr<const PlanFile> plan;
    if (model)
      unlessRefused([&] { plan = PlanFile::fromBytes(compile(model->model.clone(), trial, costs), "a trial plan"); });
    return plan;
  }

  /// The shardings of a split by the solver; null if it found none. They are the same for every stage of ZeRO, which
  /// divides what is stored.
  const partitioner::SolvedLayouts *solve(SplitChoice split) {
    split.zero = 0;
    auto [found, fresh] = solved.try_emplace(split);
    if (!fresh)
      return found->second ? &*found->second : nullptr;
    ReducedModel *model = reduced(split.rows);
    if (!model)
      return nullptr;
    partitioner::ShardingProblem problem;
    if (!unlessRefused([&] {
           problem = shardingProblem(model->model.clone(), trialOptions(split), context());
         }).empty())
      return nullptr;
    const bool tf32 = options.training && options.training->precision == plan::Precision::Tf32;
    found->second = partitioner::solveLayouts(
        problem,
        {.name = nameOf(split),
         .cluster = cluster,
         .half = options.precision.type == Precision::Type::Bf16 ? partitioner::Rate::Bf16 : partitioner::Rate::Fp16,
         .single = tf32 ? partitioner::Rate::Tf32 : partitioner::Rate::Fp32,
         .microbatches = options.batch / split.rows,
         .hides = options.backend == Target::Kind::Cuda,
         .stops = input.stops,
         .layers = modelLayers,
         .layerOf = [&](const std::string &path) { return layerOf(path); }});
    if (!options.dumpProblems.empty())
      partitioner::writeProblem(*found->second, options.dumpProblems);
    if (found->second->solution.assignment.empty())
      found->second.reset();
    return found->second ? &*found->second : nullptr;
  }

  static void addRules(const partitioner::SolvedLayouts &layouts, Decisions &strategy) {
    strategy.shard = layouts.shard;
    strategy.ops = layouts.ops;
  }

  static std::string nameOf(const SplitChoice &split) {
    return fmt::format("dp{}-tp{}-rows{}-recompute-{}", split.data, split.tensor, split.rows,
                       partitioner::text(split.recompute));
  }

  Decisions strategyOf(const SplitChoice &split, int64_t pipeline, int64_t microbatches) const {
    Decisions strategy = pinned;
    Mesh mesh = partitioner::meshByRole(split.data, split.tensor, pipeline);
    mesh.order = pinned.mesh.order;
    const Decisions chosen = partitioner::decisionsOf(PlanGroup(mesh, split, microbatches), {Decisions().schedule});
    for (const partitioner::DecisionRow &row : partitioner::decisionTable())
      if (row.word != "scatter_gather")
        row.copy(strategy, chosen);
    setRecompute(strategy, chosen.recompute);
    return strategy;
  }

  /// Puts rules of the search before those that are pinned, unless these decide all layers.
  void setRecompute(Decisions &strategy, std::vector<partitioner::RecomputeRule> rules) const {
    strategy.recompute = pinned.recompute;
    if (!partitioner::ofEveryLayer(input.request.pins.recompute))
      strategy.recompute.insert(strategy.recompute.begin(), rules.begin(), rules.end());
  }

  /// Of the products of an iteration at the peaks of all devices in its precision (or fp32, if a device has no other):
  /// a backward pass has twice the operations of a forward pass.
  double leastSeconds() const {
    double flops = 0, peak = 0;
    const auto model =
        std::ranges::find_if(cache->workers.front(), [](const auto &entry) { return entry.second.has_value(); });
    for (const LayerOutline &layer : model->second->layers)
      flops += 3 * layer.flops / static_cast<double>(model->first);
    const partitioner::Rate rate = partitioner::rateOf(options.precision.type);
    for (const Cluster::Place &place : cluster.places(input.request.devices)) {
      const partitioner::DeviceKind &kind = cluster.devices[place.kind];
      peak += kind.peak(kind.has(rate) ? rate : partitioner::Rate::Fp32);
    }
    return peak > 0 ? flops * static_cast<double>(options.batch) / peak : 0;
  }

  Decisions strategyOf(const Candidate &candidate) {
    Decisions strategy = strategyOf(candidate.group.split, candidate.group.pipeline, candidate.group.microbatches);
    strategy.mesh = candidate.group.mesh();
    if (!strategy.scatterGather)
      strategy.scatterGather = partitioner::scatterGatherBytes(cluster, strategy.mesh);
    setRecompute(strategy, partitioner::rulesOf(input.layers, candidate.recompute));
    strategy.schedule = candidate.schedule.name;
    strategy.scheduleOrigin = input.request.pins.schedule ? pinned.scheduleOrigin : "search";
    if (candidate.byOp)
      addRules(*solve(candidate.group.split), strategy);
    strategy.chunks = candidate.schedule.chunks;
    strategy.placement = pinned.placement, strategy.order = pinned.order;
    strategy.stages = pinned.stages;
    if (input.begins.empty() && strategy.stageCount() > 1)
      strategy.stages = partitioner::stageLists(input.layers, candidate.begins);
    markFound(strategy);
    return strategy;
  }

  /// Records what the request leaves open.
  void markFound(Decisions &strategy) const {
    for (const partitioner::DecisionRow &row : partitioner::decisionTable()) {
      const bool open = row.word == "stages" ? input.begins.empty() && !strategy.stages.empty()
                                             : row.open && row.open(input.request.pins);
      if (open && row.word != "recompute") // whose rules have origins of their own
        strategy.origins[std::string(row.word)] = "search";
    }
  }

  /// Adds plans with the shardings that the solver finds: for the splits of the best plans, and for ranks that all
  /// split the rows, of which the solver may make any other split.
  void addSolved(partitioner::SearchOutcome &outcome) {
    std::vector<Candidate> added;
    try {
      findSolved(outcome, added);
    } catch (const Stopped &) {
      outcome.stoppedEarly = true;
    }
    outcome.candidates.insert(outcome.candidates.end(), added.begin(), added.end());
    std::ranges::stable_sort(outcome.candidates, {}, [](const Candidate &one) { return one.estimate.seconds; });
  }

  void findSolved(const partitioner::SearchOutcome &outcome, std::vector<Candidate> &added) {
    // The solver chooses the layouts of activations itself.
    if (!sites.oneKind() || !pinned.sequence.empty() || !pinned.shard.empty() || !pinned.ops.empty())
      return;
    constexpr size_t most = 6; // splits
    std::set<SplitChoice> splits;
    std::set<std::tuple<SplitChoice, int64_t, std::string, int64_t>> tried;
    partitioner::SearchInput solvedInput = input;
    solvedInput.measure = [&](const SplitChoice &split, Site site) { return measureSolved(split, site); };
    const auto tryPlan = [&](PlanGroup group, const partitioner::ScheduleChoice &schedule) {
      group.split.sequence = false;
      if (!tried.insert({group.split, group.pipeline, schedule.name, schedule.chunks}).second)
        return;
      throwIfStopped(input.stops);
      solvedInput.layers = layersWith(group);
      auto plan = partitioner::estimatePlan(solvedInput, group, schedule);
      if (!plan || plan->begins.empty() || !plan->estimate.fits())
        return;
      plan->byOp = true;
      added.push_back(std::move(*plan));
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
  }

  /// The layers with what they send in solved shardings.
  std::vector<partitioner::SearchLayer> layersWith(const PlanGroup &group) {
    if (group.pipeline == 1)
      return input.layers;
    const Site site = input.positions(group).front();
    const SiteCosts *usual = measure(group.split, site), *solved = measureSolved(group.split, site);
    return usual && solved ? partitioner::withSent(input.layers, usual->front().costs, solved->front().costs)
                           : input.layers;
  }

  /// A plan of the whole model.
  struct Finalist {
    Decisions strategy;
    std::vector<partitioner::RecomputeRule> safer;   ///< if the plan does not fit; or empty
    std::set<int64_t> saferAt;                       ///< positions of the pipeline at which that recomputes more
    double step = 0;                                 ///< seconds; 0: it cannot be made, or does not fit
    std::string problem;                             ///< then: why
    std::shared_ptr<const PlanFile> file = nullptr;  ///< null: it cannot be made
    std::vector<partitioner::ClassTimes> times = {}; ///< of the simulation, if there is a step
  };

  /// Compiles and simulates a plan, of `model`: the whole model with the rows of the strategy; none: the plan is known.
  void judge(Finalist &finalist, std::optional<GraphModule> model, const Stops &stops) const {
    CompileOptions trial = without(options.batch);
    trial.strategy = finalist.strategy;
    passes::CompileContext costs = context();
    costs.stops = stops;
    std::shared_ptr<const PlanFile> file = knownFinalist(finalist.strategy);
    std::optional<GraphModule> again;
    if (model && !finalist.safer.empty())
      again = model->clone();
    if (!file)
      if (const std::string why = unlessRefused(
              [&] { file = PlanFile::fromBytes(compile(std::move(*model), trial, costs), "a finalist"); });
          !why.empty()) {
        finalist.problem = noneSuits(why);
        return;
      }
    if (const auto lacks = partitioner::memoryProblem(file->plan(), cluster)) {
      finalist.problem = fmt::format("no strategy fits the memory of {}: {}", devicesText(), *lacks);
      finalist.file = file;
      const uint32_t program = file->plan().ranks()->Get(partitioner::tightest(file->plan(), cluster).rank)->program();
      if (again && finalist.saferAt.contains(file->plan().programs()->Get(program)->stage())) {
        setRecompute(finalist.strategy, std::exchange(finalist.safer, {}));
        judge(finalist, std::move(again), stops);
      }
    } else {
      partitioner::Simulation simulation = partitioner::simulate(file->plan(), cluster);
      finalist.step = simulation.stepSeconds, finalist.times = std::move(simulation.times);
      finalist.file = std::move(file);
    }
  }

  /// Known plans are of devices of the same kind, but perhaps of other nodes.
  std::string keyOf(const Decisions &strategy) const {
    return strategy.toToml() + (partitioner::replicasApart(strategy.mesh, cluster) ? "replicas apart" : "");
  }

  /// The plan that another search compiled; null if none did.
  std::shared_ptr<const PlanFile> knownFinalist(const Decisions &strategy) const {
    const auto found = cache->finalists.find(keyOf(strategy));
    return found == cache->finalists.end() ? nullptr : found->second;
  }

  /// Judges candidates at the same time. Nothing for those whose model cannot be traced with their rows. Throws
  /// Stopped.
  std::vector<Finalist> judged(std::span<const Candidate> candidates, const Stops &stops) {
    std::vector<Finalist> finalists;
    std::vector<std::optional<GraphModule>> models;
    const int64_t evalBatch = options.evalBatch ? options.evalBatch : options.batch;
    for (const Candidate &candidate : candidates) {
      Finalist &finalist = finalists.emplace_back(Finalist{.strategy = strategyOf(candidate)});
      if (!candidate.safer.empty()) {
        finalist.safer = partitioner::rulesOf(input.layers, candidate.safer);
        const std::vector<size_t> positions = partitioner::positionsOf(candidate.schedule.shapeOf(candidate.group),
                                                                       candidate.begins, input.layers.size());
        for (size_t i = 0; i < positions.size(); ++i)
          if (candidate.safer[i] != candidate.recompute[i])
            finalist.saferAt.insert(static_cast<int64_t>(positions[i]));
      }
      std::optional<GraphModule> &model = models.emplace_back();
      if (finalist.safer.empty() && knownFinalist(finalist.strategy))
        continue;
      const int64_t microbatches = candidate.group.microbatches;
      if (const std::string why =
              unlessRefused([&] { model.emplace(trace(options.batch / microbatches, evalBatch / microbatches)); });
          !why.empty())
        finalist.problem = noneSuits(why);
    }
    onThreads(finalists.size(), [&](size_t i) {
      if (finalists[i].problem.empty())
        judge(finalists[i], std::move(models[i]), stops);
    });
    if (options.searchCache)
      for (const Finalist &finalist : finalists)
        if (finalist.file)
          cache->finalists.emplace(keyOf(finalist.strategy), finalist.file);
    return finalists;
  }

  /// Compiles and simulates the candidates that are estimated to be the fastest; once the search stops, until one can
  /// be made and fits. Without a record if none of them does; they are then excluded.
  FoundStrategy fastest(const partitioner::SearchOutcome &outcome) {
    FoundStrategy best;
    auto record = std::make_shared<plan::SearchT>();
    record->compiled = compiledBefore;
    constexpr size_t mostThatLack = 8;
    const std::vector<Candidate> finalists = partitioner::finalistsOf(outcome.candidates, mostThatLack, compiledAtMost);
    const auto enough = [&] { return record->step > 0 && record->compiled >= compiledAtMost; };
    double error = 0; // the part of an estimate by which it was too long
    std::map<PlanRow, double> simulated;
    const auto lower = [&] { return partitioner::lowerBound(outcome.candidates, simulated, outcome.lowest); };
    const auto close = [&] {
      return record->step > 0 && error <= nearBound && record->step <= (1 + nearBound) * lower();
    };
    for (size_t at = 0; at < finalists.size() && !enough() && !close();) {
      const bool stopped = input.stops(), first = record->step == 0;
      record->stopped_early |= stopped;
      if (stopped && !first)
        break;
      const std::span<const Candidate> some =
          std::span(finalists).subspan(at, std::min(stopped ? 1 : compiledTogether, finalists.size() - at));
      at += some.size();
      std::vector<Finalist> made;
      try {
        made = judged(some, first ? Stops() : input.stops);
      } catch (const Stopped &) {
        record->stopped_early = true;
        break;
      }
      for (size_t i = 0; i < made.size() && !enough(); ++i) {
        const PlanRow row = partitioner::rowOf(some[i].group, some[i].schedule, some[i].byOp);
        ++record->compiled;
        if (made[i].step == 0) {
          problem = made[i].problem;
          simulated[row] = INFINITY;
          if (!some[i].byOp)
            excluded.insert(row);
          continue;
        }
        simulated[row] = made[i].step;
        error = std::max(error, 1 - made[i].step / some[i].estimate.seconds);
        if (record->step == 0 || made[i].step < record->step) {
          best.strategy = made[i].strategy, best.plan = made[i].file;
          record->step = made[i].step, record->estimate = some[i].estimate.seconds;
        }
      }
    }
    if (record->step == 0) {
      compiledBefore = record->compiled;
      return {};
    }
    record->lower = std::min(lower(), record->step);
    describe(outcome, *record);
    best.record = std::move(record);
    return best;
  }

  void describe(const partitioner::SearchOutcome &outcome, plan::SearchT &record) const {
    const partitioner::SearchCounts &counts = outcome.counts;
    record.least = input.least;
    record.total = static_cast<uint64_t>(counts.total);
    record.evaluated = static_cast<uint64_t>(counts.evaluated);
    record.pruned_by_bound = static_cast<uint64_t>(counts.prunedByBound);
    record.pruned_by_memory = static_cast<uint64_t>(counts.prunedByMemory);
    record.refused = static_cast<uint64_t>(counts.refused);
    record.stopped_early |= outcome.stoppedEarly;
  }

  // ---- alternatives to a plan

  /// Compiles and simulates the plans. One that cannot be made is left out.
  std::vector<Alternative> simulated(const std::vector<Neighbour> &others) {
    std::vector<Candidate> candidates;
    for (const Neighbour &other : others)
      candidates.push_back(other.plan);
    std::vector<Alternative> all;
    for (size_t at = 0; at < candidates.size(); at += cache->workers.size()) {
      const std::span<const Candidate> some =
          std::span(candidates).subspan(at, std::min(cache->workers.size(), candidates.size() - at));
      std::vector<Finalist> made = judged(some, {});
      for (size_t i = 0; i < made.size(); ++i) {
        const std::shared_ptr<const PlanFile> &file = made[i].file;
        if (!file)
          continue;
        Alternative &one = all.emplace_back();
        one.decision = others[at + i].decision, one.value = others[at + i].value();
        one.step = made[i].step;
        const partitioner::MemoryUse memory = partitioner::tightest(file->plan(), cluster);
        one.peakBytes = memory.needed, one.capacity = memory.capacity;
        if (made[i].step == 0) // it does not fit
          made[i].times = partitioner::simulate(file->plan(), cluster).times;
        const partitioner::ClassTimes &times =
            *std::ranges::max_element(made[i].times, {}, &partitioner::ClassTimes::busy);
        one.busy = times.busy, one.communication = times.communication, one.idle = times.idle;
      }
    }
    std::ranges::stable_sort(all, {}, [](const Alternative &one) {
      return std::pair(one.step == 0, one.step > 0 ? one.step : one.busy + one.communication + one.idle);
    });
    return all;
  }

  std::string devicesText() const {
    return fmt::format("{} devices of cluster {}", input.request.devices, cluster.name);
  }

  std::string noneSuits(const std::string &why) const {
    return fmt::format("no strategy suits {}: {}", devicesText(), why);
  }

  Error noneFits(const partitioner::SearchOutcome &outcome) const {
    return environmentError("search: " + passes::noneFits(outcome, devicesText(), problem, pinnedText));
  }

  const Trace &trace;
  const PlanRequest &options;
  const Cluster cluster;
  partitioner::Sites sites;
  const Decisions pinned;
  partitioner::SearchInput input;
  const std::shared_ptr<SearchCache> cache;
  std::map<std::pair<SplitChoice, Site>, std::optional<SiteCosts>> measured;
  std::map<std::pair<SplitChoice, Site>, std::optional<SiteCosts>> measuredSolved;
  std::map<SplitChoice, std::optional<partitioner::SolvedLayouts>> solved;
  std::vector<partitioner::ModelLayer> modelLayers;
  partitioner::LayerNames names{{}};
  std::vector<std::string> keptLayers; ///< of the reduced model
  std::string lastLayer, pinnedText;
  bool hasLists = false, marked = false, alikeAlongData = false;
  std::map<std::pair<int64_t, int64_t>, bool> replicasApart; ///< by the sizes of the axes dp and tp
  std::set<PlanRow> excluded;                                ///< finalists that could not be made, or did not fit
  uint32_t compiledBefore = 0;
  std::string problem; ///< of the last of them
};

} // namespace

FoundStrategy searchStrategy(const Trace &trace, const PlanRequest &request, Stops stops) {
  return StrategySearch(trace, request, request.toSearch.value(), std::move(stops)).run();
}

std::vector<Alternative> alternativesTo(const Trace &trace, const PlanRequest &request, const Decisions &chosen) {
  partitioner::SpaceRequest space{
      .devices = chosen.mesh.ranks(), .batch = request.batch, .evalBatch = request.evalBatch};
  const auto asked = [](const auto &rules) {
    auto kept = rules;
    std::erase_if(kept, [](const auto &rule) { return rule.origin == "default" || rule.origin == "search"; });
    return kept;
  };
  space.pins.shard = asked(chosen.shard), space.pins.ops = asked(chosen.ops);
  space.pins.recompute = asked(chosen.recompute);
  std::erase_if(space.pins.recompute, [](const partitioner::RecomputeRule &rule) {
    return rule.origin == "memory" || rule.pattern == partitioner::RecomputeRule::everyLayer;
  });
  return StrategySearch(trace, request, space, neverStops).alternativesTo(chosen);
}

struct PlanEstimates::Impl {
  StrategySearch search;
};

PlanEstimates::PlanEstimates(const Trace &trace, const PlanRequest &request)
    : impl(new Impl{StrategySearch(trace, request, request.toSearch.value(), neverStops)}) {}
PlanEstimates::~PlanEstimates() = default;

std::optional<EstimatedPlan> PlanEstimates::of(const PlanGroup &group, const partitioner::ScheduleChoice &schedule) {
  return impl->search.estimate(group, schedule);
}

} // namespace cleave::passes
