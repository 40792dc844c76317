#include "passes/search/SplitTrials.h"

#include "partitioner/search/FoundDecisions.h"
#include "partitioner/search/ScaledCosts.h"
#include "passes/rewrite/Parallel.h"
#include "runtime/plan/plan_generated.h"

#include <fmt/format.h>

namespace cleave::passes {

using partitioner::Cluster;
using partitioner::Site;
using partitioner::SiteCosts;
using partitioner::SolvedLayouts;
using partitioner::SplitChoice;

/// What a problem depends on: the solution for the rows that are asked for first is taken for any others, too, as for
/// any stage of ZeRO and recomputation.
partitioner::SplitCosts::Wanted SplitTrials::problemOf(SplitChoice split, Site site) {
  site = sites.whenFull(site);
  split.rows = solvedRows.try_emplace({split.data, split.tensor, site}, split.rows).first->second;
  split.zero = 0, split.recompute = partitioner::Recomputation::None;
  return {split, site};
}

SplitChoice SplitTrials::trialOf(const SplitChoice &split) {
  constexpr int64_t few = 2; // ranks
  SplitChoice trial = split;
  if (split.data > few && split.rows % split.data == 0)
    trial.data = few, trial.rows = few * split.rowsOfRank();
  return model.alikeAlongData && !split.solved && models.withRows(trial.rows) ? trial : split;
}

TrialChoice SplitTrials::choiceOf(const SplitChoice &split, Site site) {
  const auto [apart, fresh] = replicasApart.try_emplace({split.data, split.tensor, site});
  if (fresh)
    apart->second = sites.replicasApart(split, site);
  return {trialOf(split), apart->second};
}

std::map<TrialChoice, std::shared_ptr<const PlanFile>> &SplitTrials::trialsAt(Site site, bool solved) {
  return solved ? solvedTrials[sites.whenFull(site)] : job.cache->trials;
}

Cluster SplitTrials::clusterWith(double networkShare) const {
  Cluster shared = job.cluster;
  if (networkShare != 1)
    shared.network->gbPerS *= networkShare;
  return shared;
}

const SiteCosts *SplitTrials::of(const SplitChoice &split, Site site) {
  if (const auto found = measured.find({split, site}); found != measured.end())
    return found->second ? &*found->second : nullptr;
  const TrialChoice choice = choiceOf(split, site);
  auto &trials = trialsAt(site, split.solved);
  auto trial = trials.find(choice);
  if (trial == trials.end())
    trial =
        trials.emplace(choice, compiled(choice, models.withRows(choice.split.rows), layouts(choice.split, site))).first;
  const auto found = measured.try_emplace({split, site}).first;
  if (trial->second) {
    found->second = costsAt(site, *trial->second, split == choice.split ? 0 : split.data);
    if (split.solved)
      setSentShares(split, site, *found->second);
  }
  if (sites.oneSite() && !job.request.searchCache && !model.alikeAlongData)
    trials.erase(trial); // no other site, split or search needs it
  return found->second ? &*found->second : nullptr;
}

/// The costs of the layers in a trial plan whose ranks lie at a site. `dataRanks`: see measureLayers.
SiteCosts SplitTrials::costsAt(Site site, const PlanFile &trial, int64_t dataRanks) const {
  const auto with = [&](double share) {
    return partitioner::measureLayers(trial.plan(), clusterWith(share), sites.devices(site), dataRanks);
  };
  const double busy = 1 / sites.networkShare(site); // positions
  if (busy == 1)
    return with(1);
  const auto passes = [](const SiteCosts &costs) {
    return costs.front().costs.total.forward + costs.front().costs.total.backward;
  };
  // Positions take turns at the link while the others compute: together they take no longer than the link is busy.
  const SiteCosts alone = with(1), equal = with(1 / busy);
  const double seconds = passes(alone), network = std::max(0.0, passes(equal) - seconds) / (busy - 1),
               waits = std::max(0.0, busy * network - seconds);
  return partitioner::withEndsOf(with(network > 0 ? network / (network + waits) : 1), equal);
}

/// Of values that stages may send to others: a rank may have more of one than with default shardings.
void SplitTrials::setSentShares(const SplitChoice &split, Site site, SiteCosts &costs) {
  if (split.data * split.tensor == job.asked.devices)
    return;
  const auto [shares, fresh] = sentShares.try_emplace({split.data, split.tensor});
  SplitChoice usual = split;
  usual.solved = false;
  if (fresh)
    if (const SiteCosts *known = of(usual, site))
      for (const auto &[path, layer] : known->front().costs.layers)
        if (const auto solved = costs.front().costs.layers.find(path);
            solved != costs.front().costs.layers.end() && layer.sent > 0)
          shares->second[path] = std::max(1.0, solved->second.sent / layer.sent);
  for (partitioner::KindCosts &kind : costs)
    for (const auto &[path, share] : shares->second)
      if (const auto layer = kind.costs.layers.find(path); layer != kind.costs.layers.end())
        layer->second.sentShare = share;
}

void SplitTrials::prepare(const std::vector<Wanted> &wanted) {
  std::vector<std::pair<TrialChoice, Site>> choices; // the sites matter where shardings are solved
  std::vector<Wanted> problems;
  for (const auto &[split, site] : wanted) {
    const std::pair choice(choiceOf(split, site), split.solved ? sites.whenFull(site) : Site{0});
    if (measured.contains({split, site}) || trialsAt(site, split.solved).contains(choice.first) ||
        llvm::is_contained(choices, choice))
      continue;
    choices.push_back(choice);
    if (!split.solved)
      continue;
    if (const Wanted problem = problemOf(split, site);
        !layoutsOf.contains(problem) && !llvm::is_contained(problems, problem))
      problems.push_back(problem);
  }
  solveAll(problems);
  if (models.workers() == 1) // some may not be needed
    return;
  std::vector<const SolvedLayouts *> shardings;
  for (const auto &[choice, site] : choices)
    shardings.push_back(layouts(choice.split, site));
  std::vector<std::shared_ptr<const PlanFile>> files(choices.size());
  models.onWorkers(
      choices.size(), [&](size_t i) { return choices[i].first.split.rows; },
      [&](size_t i, const ReducedModel *reduced) { files[i] = compiled(choices[i].first, reduced, shardings[i]); });
  for (size_t i = 0; i < choices.size(); ++i)
    trialsAt(choices[i].second, choices[i].first.split.solved).emplace(choices[i].first, std::move(files[i]));
  for (const auto &[split, site] : wanted)
    of(split, site);
}

/// Those of one split, in several orders of the axes, are first looked at together.
void SplitTrials::solveAll(const std::vector<Wanted> &problems) {
  struct Orders {
    std::vector<Site> sites;
    RowsAlone rowsAlone;
    bool mayBeOfUse = true;
  };
  std::map<SplitChoice, Orders> splits;
  for (const auto &[split, site] : problems)
    splits[split].sites.push_back(site);
  std::vector<std::pair<const SplitChoice, Orders> *> all;
  for (auto &one : splits)
    all.push_back(&one);
  models.onWorkers(
      all.size(), [&](size_t i) { return all[i]->first.rows; },
      [&](size_t i, const ReducedModel *reduced) {
        auto &[split, orders] = *all[i];
        orders.rowsAlone = rowsAlone(split, orders.sites, reduced);
        if (orders.sites.size() > 1 && job.request.dumpProblems.empty())
          orders.mayBeOfUse = mayBeOfUse(split, orders.sites, orders.rowsAlone, reduced);
      });
  std::vector<Wanted> left;
  for (const Wanted &one : problems)
    if (splits.at(one.first).mayBeOfUse)
      left.push_back(one);
    else
      layoutsOf.emplace(one, std::nullopt);
  std::vector<std::optional<SolvedLayouts>> solved(left.size());
  models.onWorkers(
      left.size(), [&](size_t i) { return left[i].first.rows; },
      [&](size_t i, const ReducedModel *reduced) {
        solved[i] = solve(left[i], splits.at(left[i].first).rowsAlone, reduced);
      });
  for (size_t i = 0; i < left.size(); ++i)
    layoutsOf.emplace(left[i], std::move(solved[i]));
}

CompileOptions SplitTrials::optionsOf(const SplitChoice &split) const {
  constexpr int64_t microbatches = 3;
  CompileOptions options = job.withBatch(split.rows * microbatches);
  options.evalBatch = 0;
  options.strategy = partitioner::decisionsOf(job.asked, split, 1, microbatches);
  options.strategy.stages = {model.kept}; // so that the plan's layers are those
  return options;
}

/// The reduced model's plan of one stage; null if it cannot be split so, or if there is no model with these rows.
/// `layouts`: of a solved split.
std::shared_ptr<const PlanFile> SplitTrials::compiled(const TrialChoice &choice, const ReducedModel *reduced,
                                                      const SolvedLayouts *layouts) const {
  if (!reduced || (choice.split.solved && !layouts))
    return nullptr;
  CompileOptions options = optionsOf(choice.split);
  CompileContext context = job.context();
  context.trial = true, context.replicasApart = choice.replicasApart;
  if (layouts)
    options.strategy.shard = layouts->shard, options.strategy.ops = layouts->ops;
  std::shared_ptr<const PlanFile> plan;
  unlessRefused([&] { plan = PlanFile::fromBytes(compile(reduced->model.clone(), options, context), "a trial plan"); });
  return plan;
}

bool SplitTrials::solves() const {
  const partitioner::Decisions &pinned = job.pinned;
  return sites.oneKind() && pinned.sequence.empty() && pinned.shard.empty() && pinned.ops.empty();
}

const SolvedLayouts *SplitTrials::layouts(const SplitChoice &split, Site site) {
  if (!split.solved)
    return nullptr;
  const auto [found, fresh] = layoutsOf.try_emplace(problemOf(split, site));
  if (fresh) {
    const SplitChoice &problem = found->first.first;
    const ReducedModel *reduced = models.withRows(problem.rows);
    found->second = solve(found->first, rowsAlone(problem, {site}, reduced), reduced);
  }
  return found->second ? &*found->second : nullptr;
}

/// Nothing if the model cannot be split so, or if the solver finds nothing of use.
std::optional<SolvedLayouts> SplitTrials::solve(const Wanted &wanted, const RowsAlone &rowsAlone,
                                                const ReducedModel *reduced) const {
  const auto &[split, site] = wanted;
  auto problem = reduced ? problemWith(split, *reduced) : std::nullopt;
  if (!problem)
    return std::nullopt;
  partitioner::LayoutsToSolve request = toSolve(split, {site});
  request.name = fmt::format("dp{}-tp{}{}", split.data, split.tensor, site == 0 ? "" : fmt::format("-site{}", site));
  request.all = !job.request.dumpProblems.empty();
  request.rowsAlone = rowsAlone;
  SolvedLayouts solved = partitioner::solveLayouts(*problem, request);
  if (request.all)
    partitioner::writeProblem(solved, job.request.dumpProblems);
  if (!solved.isOfUse())
    return std::nullopt;
  return solved;
}

/// What the plan takes that splits the rows over both axes, at the best of the sites; nothing if no plan does that.
SplitTrials::RowsAlone SplitTrials::rowsAlone(const SplitChoice &split, const std::vector<Site> &where,
                                              const ReducedModel *reduced) const {
  SplitChoice rows = split;
  rows.data *= rows.tensor, rows.tensor = 1;
  if (!reduced || job.asked.pins.mesh || split.tensor == 1 || split.rows % rows.data != 0)
    return std::nullopt;
  auto problem = problemWith(rows, *reduced);
  if (!problem)
    return std::nullopt;
  return partitioner::defaultCost(*problem, toSolve(rows, where));
}

/// Whether the solver may find something of use at any of the sites.
bool SplitTrials::mayBeOfUse(const SplitChoice &split, const std::vector<Site> &where, const RowsAlone &rowsAlone,
                             const ReducedModel *reduced) const {
  auto problem = reduced ? problemWith(split, *reduced) : std::nullopt;
  if (!problem)
    return false;
  partitioner::LayoutsToSolve request = toSolve(split, where);
  request.rowsAlone = rowsAlone;
  return partitioner::mayBeOfUse(*problem, request);
}

/// The problem of a split; nothing if the model cannot be split so.
std::optional<partitioner::ShardingProblem> SplitTrials::problemWith(const SplitChoice &split,
                                                                     const ReducedModel &reduced) const {
  std::optional<partitioner::ShardingProblem> problem;
  unlessRefused([&] { problem = shardingProblem(reduced.model.clone(), optionsOf(split), job.context()); });
  return problem;
}

partitioner::LayoutsToSolve SplitTrials::toSolve(const SplitChoice &split, const std::vector<Site> &where) const {
  std::vector<partitioner::LayoutDevices> places;
  for (const Site site : where)
    places.push_back({clusterWith(sites.networkShare(site)), sites.devices(site)});
  const PlanRequest &request = job.request;
  const double microbatches = static_cast<double>(request.batch) / static_cast<double>(split.rows),
               positions = static_cast<double>(job.asked.devices) / static_cast<double>(split.data * split.tensor);
  const bool tf32 = request.training && request.training->precision == plan::Precision::Tf32;
  return {.places = std::move(places),
          .half = request.precision.type == Precision::Type::Bf16 ? partitioner::Rate::Bf16 : partitioner::Rate::Fp16,
          .single = tf32 ? partitioner::Rate::Tf32 : partitioner::Rate::Fp32,
          .microbatches = request.batch / split.rows,
          .interest = interest * positions / microbatches,
          .hides = request.backend == Target::Kind::Cuda,
          .stops = job.stops,
          .layers = model.solved,
          .layerOf = [&](const std::string &path) { return model.layerOf(path); }};
}

} // namespace cleave::passes
