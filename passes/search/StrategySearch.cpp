// Puts the parts of a search together: the model, the costs of its layers, and plans of the whole model.
#include "passes/search/StrategySearch.h"

#include "partitioner/search/Neighbours.h"
#include "partitioner/simulate/Memory.h"
#include "passes/search/Finalists.h"
#include "passes/search/NoneFits.h"
#include "runtime/base/Error.h"

#include <algorithm>
#include <utility>

namespace cleave::passes {

std::shared_ptr<SearchCache> newSearchCache() { return std::make_shared<SearchCache>(); }

namespace {

using partitioner::Candidate;
using partitioner::Decisions;
using partitioner::Neighbour;
using partitioner::PlanGroup;
using partitioner::TriedPlan;

/// The parts of a search; they refer to each other.
struct Parts {
  const SearchJob &job;
  partitioner::Sites sites{job.cluster, job.asked.devices};
  ReducedModels models{job};
  const SearchedModel model = readModel(job, models);
  SplitTrials trials{job, model, models, sites};
  partitioner::SearchInput input{.space = model.space,
                                 .layers = model.layers,
                                 .begins = model.begins,
                                 .least = model.least,
                                 .sumShare = half() && job.request.precision.reduce != Precision::Type::Fp32 ? 0.5 : 1,
                                 .gatherShare = half() ? 0.5 : 1,
                                 .places = &sites,
                                 .costs = &trials,
                                 .excluded = {},
                                 .stops = job.stops};
  Finalists finalists{job, input, trials};

  bool half() const { return job.request.precision.level > 0; }

  explicit Parts(const SearchJob &job) : job(job) { input.space.solves = trials.solves(); }
  Parts(const Parts &) = delete;
  Parts &operator=(const Parts &) = delete;
};

/// Compiles and simulates the plans. One that cannot be made is left out.
std::vector<Alternative> simulated(Parts &parts, const std::vector<Neighbour> &others) {
  std::vector<Candidate> candidates;
  for (const Neighbour &other : others)
    candidates.push_back(other.plan);
  const partitioner::Cluster &cluster = parts.job.cluster;
  std::vector<Alternative> all;
  for (size_t at = 0; at < candidates.size(); at += parts.models.workers()) {
    const std::span<const Candidate> some =
        std::span(candidates).subspan(at, std::min(parts.models.workers(), candidates.size() - at));
    std::vector<TriedPlan> made = parts.finalists.tried(some, {});
    for (size_t i = 0; i < made.size(); ++i) {
      if (!made[i].file)
        continue;
      const plan::Plan &plan = made[i].file->plan();
      Alternative &one = all.emplace_back();
      one.decision = others[at + i].decision, one.value = others[at + i].value();
      one.step = made[i].step;
      const partitioner::MemoryUse memory = partitioner::tightest(plan, cluster);
      one.peakBytes = memory.needed, one.capacity = memory.capacity;
      if (made[i].step == 0) // it does not fit
        made[i].times = partitioner::simulate(plan, cluster).times;
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

} // namespace

FoundStrategy searchStrategy(const Trace &trace, const PlanRequest &request, Stops stops) {
  const SearchJob job(trace, request, request.toSearch.value(), std::move(stops));
  const auto refuse = [&](const partitioner::SearchOutcome &outcome, const std::string &problem,
                          const std::string &pinned) {
    return environmentError("search: " + noneFits(outcome, job.devicesText(), problem, pinned));
  };
  std::optional<Parts> parts;
  try {
    parts.emplace(job);
  } catch (const Stopped &) {
    throw refuse({.stoppedEarly = true}, "", "");
  }
  partitioner::FoundPlan found = partitioner::findPlan(parts->input, parts->finalists);
  if (found.plan.step == 0)
    throw refuse(found.outcome, found.problem, parts->model.largestPinned);
  return {std::move(found.plan.strategy), std::make_shared<plan::SearchT>(found.record), std::move(found.plan.file)};
}

std::vector<Alternative> alternativesTo(const Trace &trace, const PlanRequest &request, const Decisions &chosen) {
  partitioner::SpaceRequest asked{
      .devices = chosen.mesh.ranks(), .batch = request.batch, .evalBatch = request.evalBatch};
  const auto askedFor = [](const auto &rules) {
    auto kept = rules;
    std::erase_if(kept, [](const auto &rule) { return rule.origin == "default" || rule.origin == "search"; });
    return kept;
  };
  asked.pins.shard = askedFor(chosen.shard), asked.pins.ops = askedFor(chosen.ops);
  asked.pins.recompute = askedFor(chosen.recompute);
  std::erase_if(asked.pins.recompute, [](const partitioner::RecomputeRule &rule) {
    return rule.origin == "memory" || rule.pattern == partitioner::RecomputeRule::everyLayer;
  });
  const SearchJob job(trace, request, asked, {});
  Parts parts(job);
  const partitioner::SearchInput &input = parts.input;
  PlanGroup group = partitioner::groupOf(chosen, request.batch);
  const auto isFound = [](const auto &rule) { return rule.origin == "search"; };
  group.split.solved = std::ranges::any_of(chosen.shard, isFound) || std::ranges::any_of(chosen.ops, isFound);
  std::vector<Neighbour> others =
      partitioner::neighboursOf(input.space, parts.sites, group, {chosen.schedule, chosen.chunks});
  std::vector<partitioner::SplitCosts::Wanted> wanted;
  for (const Neighbour &other : others)
    for (const partitioner::Site site : parts.sites.positions(other.plan.group))
      wanted.emplace_back(other.plan.group.split, site);
  parts.trials.prepare(wanted);
  std::erase_if(others, [&](Neighbour &other) { // with the better of solved and default shardings
    std::optional<Candidate> best;
    for (const bool solved : {other.plan.group.split.solved, false}) {
      other.plan.group.split.solved = solved;
      auto plan = partitioner::estimatePlan(input, other.plan.group, other.plan.schedule);
      if (plan && !plan->begins.empty() &&
          (!best || std::pair(!plan->estimate.fits(), plan->estimate.seconds) <
                        std::pair(!best->estimate.fits(), best->estimate.seconds)))
        best = std::move(plan);
    }
    if (best)
      other.plan = std::move(*best);
    return !best;
  });
  return simulated(parts, partitioner::mostInteresting(std::move(others)));
}

struct PlanEstimates::Impl {
  const SearchJob job;
  Parts parts{job};
};

PlanEstimates::PlanEstimates(const Trace &trace, const PlanRequest &request)
    : impl(new Impl{SearchJob(trace, request, request.toSearch.value(), {})}) {}
PlanEstimates::~PlanEstimates() = default;

std::optional<EstimatedPlan> PlanEstimates::of(const PlanGroup &group, const partitioner::ScheduleChoice &schedule) {
  const auto plan = partitioner::estimatePlan(impl->parts.input, group, schedule);
  if (!plan || plan->begins.empty())
    return std::nullopt;
  return EstimatedPlan{impl->parts.finalists.strategyOf(*plan), plan->estimate};
}

} // namespace cleave::passes
