// Compiles and simulates the plans of several candidates at the same time.
#include "passes/search/Finalists.h"

#include "partitioner/search/FoundDecisions.h"
#include "partitioner/simulate/Memory.h"
#include "passes/rewrite/Parallel.h"

#include <fmt/format.h>
#include <utility>

namespace cleave::passes {

using partitioner::Candidate;
using partitioner::Decisions;
using partitioner::PlanGroup;
using partitioner::TriedPlan;

Decisions Finalists::strategyOf(const Candidate &candidate) {
  const PlanGroup &group = candidate.group;
  const auto *solved =
      group.split.solved ? trials.layouts(group.split, input.places->positions(group).front()) : nullptr;
  return partitioner::decisionsOf(input, candidate, job.cluster, solved);
}

Finalists::Safer Finalists::saferOf(const Candidate &candidate) const {
  Safer safer;
  if (candidate.safer.empty())
    return safer;
  safer.rules = partitioner::rulesOf(input.layers, candidate.safer);
  const std::vector<size_t> positions =
      partitioner::positionsOf(candidate.schedule.shapeOf(candidate.group), candidate.begins, input.layers.size());
  for (size_t i = 0; i < positions.size(); ++i)
    if (candidate.safer[i] != candidate.recompute[i])
      safer.at.insert(static_cast<int64_t>(positions[i]));
  return safer;
}

/// Of `model`: the whole model with the rows of the strategy; none: the plan is known.
void Finalists::compileAndSimulate(TriedPlan &plan, Safer safer, std::optional<GraphModule> model,
                                   const Stops &stops) const {
  CompileOptions options = job.withBatch(job.request.batch);
  options.strategy = plan.strategy;
  CompileContext context = job.context();
  context.stops = stops;
  std::shared_ptr<const PlanFile> file = known(plan.strategy);
  std::optional<GraphModule> again;
  if (model && !safer.rules.empty())
    again = model->clone();
  if (!file)
    if (const std::string why = unlessRefused(
            [&] { file = PlanFile::fromBytes(compile(std::move(*model), options, context), "a finalist"); });
        !why.empty()) {
      plan.problem = noneSuits(why);
      return;
    }
  plan.file = std::move(file);
  partitioner::judge(plan, job.cluster);
  if (plan.step > 0)
    return;
  plan.problem = fmt::format("no strategy fits the memory of {}: {}", job.devicesText(), plan.problem);
  const plan::Plan &made = plan.file->plan();
  const uint32_t program = made.ranks()->Get(partitioner::tightest(made, job.cluster).rank)->program();
  if (again && safer.at.contains(made.programs()->Get(program)->stage())) {
    partitioner::setRecompute(plan.strategy, job.asked.pins, std::move(safer.rules));
    compileAndSimulate(plan, {}, std::move(again), stops);
  }
}

/// Known plans are of devices of the same kind, but perhaps of other nodes.
std::string Finalists::keyOf(const Decisions &strategy) const {
  return strategy.toToml() + (partitioner::replicasApart(strategy.mesh, job.cluster) ? "replicas apart" : "");
}

/// The plan that another search compiled; null if none did.
std::shared_ptr<const PlanFile> Finalists::known(const Decisions &strategy) const {
  const auto found = job.cache->finalists.find(keyOf(strategy));
  return found == job.cache->finalists.end() ? nullptr : found->second;
}

std::string Finalists::noneSuits(const std::string &why) const {
  return fmt::format("no strategy suits {}: {}", job.devicesText(), why);
}

std::vector<TriedPlan> Finalists::tried(std::span<const Candidate> candidates, const Stops &stops) {
  std::vector<TriedPlan> plans;
  std::vector<Safer> safer;
  std::vector<std::optional<GraphModule>> models;
  const CompileOptions &request = job.request;
  const int64_t evalBatch = request.evalBatch ? request.evalBatch : request.batch;
  for (const Candidate &candidate : candidates) {
    TriedPlan &plan = plans.emplace_back(TriedPlan{.strategy = strategyOf(candidate)});
    safer.push_back(saferOf(candidate));
    std::optional<GraphModule> &model = models.emplace_back();
    if (safer.back().rules.empty() && known(plan.strategy))
      continue;
    const int64_t microbatches = candidate.group.microbatches;
    if (const std::string why =
            unlessRefused([&] { model.emplace(job.trace(request.batch / microbatches, evalBatch / microbatches)); });
        !why.empty())
      plan.problem = noneSuits(why);
  }
  onThreads(plans.size(), [&](size_t i) {
    if (plans[i].problem.empty())
      compileAndSimulate(plans[i], std::move(safer[i]), std::move(models[i]), stops);
  });
  if (job.request.searchCache)
    for (const TriedPlan &plan : plans)
      if (plan.file)
        job.cache->finalists.emplace(keyOf(plan.strategy), plan.file);
  return plans;
}

} // namespace cleave::passes
