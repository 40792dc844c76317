#include "passes/search/SplitTrials.h"

#include "partitioner/search/FoundDecisions.h"
#include "passes/rewrite/Parallel.h"
#include "runtime/plan/plan_generated.h"

#include <fmt/format.h>

namespace cleave::passes {

using partitioner::Cluster;
using partitioner::Site;
using partitioner::SiteCosts;
using partitioner::SolvedLayouts;
using partitioner::SplitChoice;

SplitChoice SplitTrials::trialOf(const SplitChoice &split) {
  constexpr int64_t few = 2; // ranks
  SplitChoice trial = split;
  if (split.data > few && split.rows % split.data == 0)
    trial.data = few, trial.rows = few * split.rowsOfRank();
  return model.alikeAlongData && models.withRows(trial.rows) ? trial : split;
}

TrialChoice SplitTrials::choiceOf(const SplitChoice &split) {
  const auto [apart, fresh] = replicasApart.try_emplace({split.data, split.tensor});
  if (fresh)
    apart->second = partitioner::replicasApart(partitioner::decisionsOf(job.asked, split, 1, 1).mesh, job.cluster);
  return {trialOf(split), apart->second};
}

const SiteCosts *SplitTrials::of(const SplitChoice &split, Site site) {
  if (const auto found = measured.find({split, site}); found != measured.end())
    return found->second ? &*found->second : nullptr;
  const TrialChoice choice = choiceOf(split);
  auto trial = job.cache->trials.find(choice);
  if (trial == job.cache->trials.end())
    trial = job.cache->trials.emplace(choice, compiled(choice, models.withRows(choice.split.rows))).first;
  const auto found = measured.try_emplace({split, site}).first;
  if (trial->second)
    found->second = costsAt(site, *trial->second, split == choice.split ? 0 : split.data);
  if (sites.oneSite() && !job.request.searchCache && !model.alikeAlongData)
    job.cache->trials.erase(trial); // no other site, split or search needs it
  return found->second ? &*found->second : nullptr;
}

/// The costs of the layers in a trial plan whose ranks lie at a site. `dataRanks`: see measureLayers.
SiteCosts SplitTrials::costsAt(Site site, const PlanFile &trial, int64_t dataRanks) const {
  if (sites.networkShare(site) == 1)
    return partitioner::measureLayers(trial.plan(), job.cluster, sites.devices(site), dataRanks);
  Cluster shared = job.cluster;
  shared.network->gbPerS *= sites.networkShare(site);
  return partitioner::measureLayers(trial.plan(), shared, sites.devices(site), dataRanks);
}

void SplitTrials::prepare(const std::vector<Wanted> &wanted) {
  const size_t workers = models.workers();
  if (workers == 1) // some may not be needed
    return;
  std::vector<TrialChoice> choices;
  for (const auto &[split, site] : wanted)
    if (const TrialChoice choice = choiceOf(split); !measured.contains({split, site}) &&
                                                    !job.cache->trials.contains(choice) &&
                                                    !llvm::is_contained(choices, choice))
      choices.push_back(choice);
  std::vector<std::shared_ptr<const PlanFile>> files(choices.size());
  std::vector<ReducedModel *> reduced;
  for (size_t i = 0; i < choices.size(); ++i)
    reduced.push_back(models.withRows(choices[i].split.rows, i % workers));
  onThreads(std::min(workers, choices.size()), [&](size_t worker) {
    for (size_t i = worker; i < choices.size(); i += workers)
      files[i] = compiled(choices[i], reduced[i]);
  });
  for (size_t i = 0; i < choices.size(); ++i)
    job.cache->trials.emplace(choices[i], std::move(files[i]));
  for (const auto &[split, site] : wanted)
    of(split, site);
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
std::shared_ptr<const PlanFile> SplitTrials::compiled(const TrialChoice &choice, const ReducedModel *reduced,
                                                      const SolvedLayouts *layouts) const {
  CompileOptions options = optionsOf(choice.split);
  CompileContext context = job.context();
  context.trial = true, context.replicasApart = choice.replicasApart;
  if (layouts)
    options.strategy.shard = layouts->shard, options.strategy.ops = layouts->ops;
  std::shared_ptr<const PlanFile> plan;
  if (reduced)
    unlessRefused(
        [&] { plan = PlanFile::fromBytes(compile(reduced->model.clone(), options, context), "a trial plan"); });
  return plan;
}

const SolvedLayouts *SplitTrials::layouts(SplitChoice split) {
  split.zero = 0;
  auto [found, fresh] = layoutsOf.try_emplace(split);
  if (!fresh)
    return found->second ? &*found->second : nullptr;
  ReducedModel *reduced = models.withRows(split.rows);
  if (!reduced)
    return nullptr;
  partitioner::ShardingProblem problem;
  if (!unlessRefused([&] {
         problem = shardingProblem(reduced->model.clone(), optionsOf(split), job.context());
       }).empty())
    return nullptr;
  const PlanRequest &request = job.request;
  const bool tf32 = request.training && request.training->precision == plan::Precision::Tf32;
  found->second = partitioner::solveLayouts(
      problem,
      {.name = fmt::format("dp{}-tp{}-rows{}-recompute-{}", split.data, split.tensor, split.rows,
                           partitioner::text(split.recompute)),
       .cluster = job.cluster,
       .half = request.precision.type == Precision::Type::Bf16 ? partitioner::Rate::Bf16 : partitioner::Rate::Fp16,
       .single = tf32 ? partitioner::Rate::Tf32 : partitioner::Rate::Fp32,
       .microbatches = request.batch / split.rows,
       .hides = request.backend == Target::Kind::Cuda,
       .stops = job.stops,
       .layers = model.solved,
       .layerOf = [&](const std::string &path) { return model.layerOf(path); }});
  if (!request.dumpProblems.empty())
    partitioner::writeProblem(*found->second, request.dumpProblems);
  if (found->second->solution.assignment.empty())
    found->second.reset();
  return found->second ? &*found->second : nullptr;
}

partitioner::SplitCosts *SplitTrials::solved() {
  const partitioner::Decisions &pinned = job.pinned;
  const bool free = sites.oneKind() && pinned.sequence.empty() && pinned.shard.empty() && pinned.ops.empty();
  return free ? &solvedCosts : nullptr;
}

const SiteCosts *SplitTrials::Solved::of(const SplitChoice &split, Site site) {
  constexpr double worthwhile = 0.9999; // of the default shardings' cost
  const SolvedLayouts *layouts = trials.layouts(split);
  if (!layouts || static_cast<double>(layouts->cost) > worthwhile * static_cast<double>(layouts->defaultCost))
    return nullptr;
  auto [found, fresh] = measured.try_emplace({split, site});
  if (fresh)
    if (const auto trial =
            trials.compiled({split, trials.choiceOf(split).replicasApart}, trials.models.withRows(split.rows), layouts))
      found->second = trials.costsAt(site, *trial);
  return found->second ? &*found->second : nullptr;
}

} // namespace cleave::passes
