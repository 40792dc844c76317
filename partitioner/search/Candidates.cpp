// Estimators of single plans, their cuts, and the choice of finalists.
#include "partitioner/search/Candidates.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

namespace cleave::partitioner {

PlanRow rowOf(const PlanGroup &group, const ScheduleChoice &schedule, bool byOp) {
  return {group.split, group.microbatches, group.sizes, group.order, schedule.name, schedule.chunks, byOp};
}

double lowerBound(std::span<const Candidate> candidates, const std::map<PlanRow, double> &simulated, double others) {
  double lower = others;
  for (const Candidate &one : candidates) {
    const auto known = simulated.find(rowOf(one.group, one.schedule, one.byOp));
    lower = std::min(lower, known != simulated.end() ? known->second : one.estimate.seconds);
  }
  return lower;
}

std::vector<SearchLayer> withSent(std::vector<SearchLayer> layers, const PlanCosts &usual, const PlanCosts &solved) {
  for (SearchLayer &layer : layers) {
    const auto before = usual.layers.find(layer.measured), now = solved.layers.find(layer.measured);
    if (before != usual.layers.end() && now != solved.layers.end() && before->second.sent > 0)
      layer.sentBytes *= std::max(1.0, now->second.sent / before->second.sent);
  }
  return layers;
}

std::vector<RecomputeRule> rulesOf(const std::vector<SearchLayer> &layers,
                                   const std::vector<Recomputation> &recompute) {
  std::map<Recomputation, int64_t> counts;
  for (const Recomputation kind : recompute)
    ++counts[kind];
  const Recomputation most =
      std::ranges::max_element(counts, {}, [](const auto &entry) { return entry.second; })->first;
  std::vector<RecomputeRule> rules{{RecomputeRule::everyLayer, most, "search"}};
  for (size_t i = 0; i < recompute.size(); ++i)
    if (recompute[i] != most && layers[i].ownRule)
      rules.push_back({layers[i].path, recompute[i], "search"});
  return rules;
}

std::vector<Recomputation> recomputeOf(const PlanGroup &group) {
  return std::vector(static_cast<size_t>(group.pipeline), group.split.recompute);
}

std::optional<PositionCosts> measurePositions(const SearchInput &input, const PlanGroup &group,
                                              const std::vector<Recomputation> &recompute) {
  std::vector<Site> sites = input.positions(group);
  if (std::ranges::count(recompute, recompute.front()) != std::ssize(recompute))
    sites.resize(recompute.size(), sites.front()); // of one kind
  PositionCosts positions;
  for (size_t p = 0; p < sites.size(); ++p) {
    SplitChoice split = group.split;
    split.recompute = recompute[p];
    positions.push_back(input.measure(split, sites[p]));
    if (!positions.back())
      return std::nullopt;
  }
  return positions;
}

Estimator estimatorOf(const SearchInput &input, const PlanGroup &group, PositionCosts positions) {
  return {input.layers,
          group,
          std::move(positions),
          {[&](int64_t from, int64_t to, double bytes) { return input.sendSeconds(group, from, to, bytes); },
           [&](const std::vector<int64_t> &readers, double bytes) {
             return input.tiedSeconds(group, readers, bytes * input.sumShare);
           },
           input.sharedLinks(group), input.metricsSeconds},
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

std::vector<std::vector<std::string>> stageLists(const std::vector<SearchLayer> &layers,
                                                 const std::vector<size_t> &begins) {
  std::vector<std::vector<std::string>> stages(begins.size());
  std::map<std::string, int64_t> uses;
  size_t stage = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    const bool first = stage + 1 < stages.size() && i == begins[stage + 1];
    stage += first;
    const std::string &path = layers[i].path;
    if (const int64_t use = path.empty() ? 0 : ++uses[path]; use == 1 || (use > 1 && first))
      stages[stage].push_back(LayerUse{path, use}.str());
  }
  return stages;
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

std::vector<Candidate> finalistsOf(const std::vector<Candidate> &candidates, size_t most, size_t certain) {
  constexpr size_t mostAlike = 2;
  std::map<std::tuple<int64_t, int64_t, int64_t, bool>, size_t> alike;
  std::set<std::tuple<int64_t, int64_t, bool, double, double>> estimates;
  std::vector<const Candidate *> chosen, others;
  for (const Candidate &candidate : candidates) {
    const PlanGroup &group = candidate.group;
    const SplitChoice &split = group.split;
    if (!estimates
             .emplace(split.data, split.tensor, candidate.byOp, candidate.estimate.seconds, candidate.estimate.bytes)
             .second)
      continue;
    const bool differs = ++alike[{split.data, split.tensor, group.pipeline, candidate.byOp}] <= mostAlike;
    (differs ? chosen : others).push_back(&candidate);
  }
  chosen.insert(chosen.end(), others.begin(), others.end());
  const auto usual = std::ranges::find_if(chosen, [](const Candidate *one) { return !one->byOp; });
  if (usual != chosen.end() && usual - chosen.begin() >= static_cast<std::ptrdiff_t>(certain))
    std::iter_swap(usual, chosen.begin() + static_cast<std::ptrdiff_t>(certain) - 1);
  std::vector<Candidate> finalists;
  for (size_t i = 0; i < std::min(most, chosen.size()); ++i)
    finalists.push_back(*chosen[i]);
  return finalists;
}

} // namespace cleave::partitioner
