// Estimators of single plans, their cuts, and the choice of finalists.
#include "partitioner/search/Candidates.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

namespace cleave::partitioner {

PlanRow rowOf(const PlanGroup &group, const ScheduleChoice &schedule) {
  return {group.split, group.microbatches, group.sizes, group.order, schedule.name, schedule.chunks};
}

double lowerBound(std::span<const Candidate> candidates, const std::map<PlanRow, double> &simulated, double others) {
  double lower = others;
  for (const Candidate &one : candidates) {
    const auto known = simulated.find(rowOf(one.group, one.schedule));
    lower = std::min(lower, known != simulated.end() ? known->second : one.estimate.seconds);
  }
  return lower;
}

std::vector<Recomputation> recomputeOf(const PlanGroup &group) {
  return std::vector(static_cast<size_t>(group.pipeline), group.split.recompute);
}

PositionCosts pointersTo(const Positions &positions) {
  PositionCosts pointers;
  for (const SiteCosts &site : positions)
    pointers.push_back(&site);
  return pointers;
}

std::optional<PositionCosts> measurePositions(const SearchInput &input, const PlanGroup &group,
                                              const std::vector<Recomputation> &recompute) {
  std::vector<Site> sites = input.places->positions(group);
  if (std::ranges::count(recompute, recompute.front()) != std::ssize(recompute))
    sites.resize(recompute.size(), sites.front()); // of one kind
  PositionCosts positions;
  for (size_t p = 0; p < sites.size(); ++p) {
    SplitChoice split = group.split;
    split.recompute = recompute[p];
    positions.push_back(input.costs->of(split, sites[p]));
    if (!positions.back())
      return std::nullopt;
  }
  return positions;
}

Estimator estimatorOf(const SearchInput &input, const PlanGroup &group, PositionCosts positions) {
  return {input.layers,
          group,
          std::move(positions),
          {[&](int64_t from, int64_t to, double bytes) { return input.places->sendSeconds(group, from, to, bytes); },
           [&](const std::vector<int64_t> &readers, double bytes) {
             return input.places->tiedSeconds(group, readers, bytes * input.sumShare);
           },
           input.places->sharedLinks(group), input.places->metricsSeconds()},
          input.begins};
}

std::vector<Recomputation> recomputeOfLayers(const PlanGroup &group, const ScheduleChoice &schedule,
                                             const std::vector<size_t> &begins,
                                             const std::vector<Recomputation> &ofPositions, size_t layers) {
  std::vector<Recomputation> kinds;
  for (const size_t position : positionsOf(schedule.shapeOf(group), begins, layers))
    kinds.push_back(ofPositions[position]);
  return kinds;
}

void setRecompute(Candidate &plan, const std::vector<Recomputation> &ofPositions,
                  const std::vector<Recomputation> &less, const std::vector<bool> &lighter) {
  plan.safer = plan.recompute = recomputeOfLayers(plan.group, plan.schedule, plan.begins, ofPositions, lighter.size());
  const std::vector<Recomputation> lightest =
      recomputeOfLayers(plan.group, plan.schedule, plan.begins, less, lighter.size());
  for (size_t i = 0; i < lighter.size(); ++i)
    if (lighter[i])
      plan.recompute[i] = lightest[i];
}

void moveCuts(const SearchInput &input, Candidate &plan, int64_t &passes) {
  const std::vector<Recomputation> &most = plan.safer.empty() ? plan.recompute : plan.safer;
  std::vector<Recomputation> ofPositions = recomputeOf(plan.group), less;
  const std::vector<size_t> positionOf =
      positionsOf(plan.schedule.shapeOf(plan.group), plan.begins, input.layers.size());
  for (size_t i = 0; i < positionOf.size(); ++i)
    ofPositions[positionOf[i]] = most[i];
  less = ofPositions;
  std::vector<bool> lighter(positionOf.size());
  for (size_t i = 0; i < positionOf.size(); ++i)
    if (plan.recompute[i] != most[i])
      less[positionOf[i]] = plan.recompute[i], lighter[i] = true;
  Estimator estimator = estimatorOf(input, plan.group, *measurePositions(input, plan.group, ofPositions));
  if (less != ofPositions)
    estimator.mix(*measurePositions(input, plan.group, less), lighter);
  const bool mixed = !plan.safer.empty();
  plan.estimate = estimator.moveCuts(plan.schedule, plan.begins, plan.estimate, passes);
  setRecompute(plan, ofPositions, less, lighter);
  if (!mixed)
    plan.safer.clear();
}

std::optional<Candidate> estimatePlan(const SearchInput &input, const PlanGroup &group,
                                      const ScheduleChoice &schedule) {
  Candidate plan{group, schedule, {}, {}, std::vector(input.layers.size(), group.split.recompute), {}};
  const auto positions = measurePositions(input, group, recomputeOf(group));
  if (!positions)
    return std::nullopt;
  const Estimator estimator = estimatorOf(input, group, *positions);
  plan.begins = estimator.cut(schedule);
  plan.estimate = estimator.of(schedule, plan.begins);
  if (std::vector<size_t> other = estimator.cutBySends(schedule); !other.empty())
    if (Estimate estimate = estimator.of(schedule, other);
        estimate.fits() && (!plan.estimate.fits() || estimate.seconds < plan.estimate.seconds))
      plan.begins = std::move(other), plan.estimate = std::move(estimate);
  int64_t passes = 1'000'000;
  if (plan.estimate.fits())
    moveCuts(input, plan, passes);
  return plan;
}

} // namespace cleave::partitioner
