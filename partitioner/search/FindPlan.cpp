#include "partitioner/search/FindPlan.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

namespace cleave::partitioner {
namespace {

constexpr uint32_t triedAtMost = 4; ///< plans of the whole model, if one of them fits
constexpr size_t triedTogether = 2; ///< of them at the same time
/// A plan at most this part above the bound ends the trials, if no estimate was longer by more.
constexpr double nearBound = 0.01;

/// The layers with what they send in solved shardings, in which a rank may have more of a value.
std::vector<SearchLayer> withSent(std::vector<SearchLayer> layers, const PlanCosts &usual, const PlanCosts &solved) {
  for (SearchLayer &layer : layers) {
    const auto before = usual.layers.find(layer.measured), now = solved.layers.find(layer.measured);
    if (before != usual.layers.end() && now != solved.layers.end() && before->second.sent > 0)
      layer.sentBytes *= std::max(1.0, now->second.sent / before->second.sent);
  }
  return layers;
}

std::vector<SearchLayer> layersWith(const SearchInput &input, const PlanGroup &group, SplitCosts &solved) {
  if (group.pipeline == 1)
    return input.layers;
  const Site site = input.places->positions(group).front();
  const SiteCosts *usual = input.costs->of(group.split, site), *other = solved.of(group.split, site);
  return usual && other ? withSent(input.layers, usual->front().costs, other->front().costs) : input.layers;
}

/// Adds plans with solved shardings to `added`. Throws Stopped.
void findSolved(const SearchInput &input, SplitCosts &solved, const SearchOutcome &outcome,
                std::vector<Candidate> &added) {
  constexpr size_t most = 6; // splits
  std::set<SplitChoice> splits;
  std::set<std::tuple<SplitChoice, int64_t, std::string, int64_t>> tried;
  SearchInput solvedInput = input;
  solvedInput.costs = &solved;
  const auto tryPlan = [&](PlanGroup group, const ScheduleChoice &schedule) {
    group.split.sequence = false; // the solver chooses the layouts of activations itself
    if (!tried.insert({group.split, group.pipeline, schedule.name, schedule.chunks}).second)
      return;
    throwIfStopped(input.stops);
    solvedInput.layers = layersWith(input, group, solved);
    auto plan = estimatePlan(solvedInput, group, schedule);
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
  for (const PlanGroup &group : groupsOf(input.space, *input.places))
    if (more > 0 && group.pipeline == 1 && group.split.tensor == 1 && group.split.zero == 0 &&
        splits.insert(group.split).second) {
      --more;
      for (const ScheduleChoice &schedule : schedulesOf(input.space, group))
        tryPlan(group, schedule);
    }
}

void addSolved(const SearchInput &input, SplitCosts &solved, SearchOutcome &outcome) {
  std::vector<Candidate> added;
  try {
    findSolved(input, solved, outcome, added);
  } catch (const Stopped &) {
    outcome.stoppedEarly = true;
  }
  outcome.candidates.insert(outcome.candidates.end(), added.begin(), added.end());
  std::ranges::stable_sort(outcome.candidates, {}, [](const Candidate &one) { return one.estimate.seconds; });
}

/// The plans to compile: the fastest of `candidates`, which are sorted by time, at most `most`. At most two have the
/// same mesh if there are others, so that an error of the estimate matters less. Of those that an option does not
/// change (sequence parallelism of a model without sequences) only the first is taken. One of the first `certain` at
/// least has the default shardings, which every model can follow.
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

/// Makes and simulates the candidates that are estimated to be the fastest. Excludes those that cannot be made or do
/// not fit.
void tryFinalists(SearchInput &input, PlanTrials &trials, FoundPlan &found) {
  constexpr size_t mostThatLack = 8;
  plan::SearchT &record = found.record;
  const std::vector<Candidate> &candidates = found.outcome.candidates;
  const std::vector<Candidate> finalists = finalistsOf(candidates, mostThatLack, triedAtMost);
  const auto enough = [&] { return record.step > 0 && record.compiled >= triedAtMost; };
  double error = 0; // the part of an estimate by which it was too long
  std::map<PlanRow, double> simulated;
  const auto lower = [&] { return lowerBound(candidates, simulated, found.outcome.lowest); };
  const auto close = [&] { return record.step > 0 && error <= nearBound && record.step <= (1 + nearBound) * lower(); };
  for (size_t at = 0; at < finalists.size() && !enough() && !close();) {
    const bool stopped = input.stops && input.stops(), first = record.step == 0;
    record.stopped_early |= stopped;
    if (stopped && !first)
      break;
    const std::span<const Candidate> some =
        std::span(finalists).subspan(at, std::min(stopped ? 1 : triedTogether, finalists.size() - at));
    at += some.size();
    std::vector<TriedPlan> made;
    try {
      made = trials.tried(some, first ? Stops() : input.stops);
    } catch (const Stopped &) {
      record.stopped_early = true;
      break;
    }
    for (size_t i = 0; i < made.size() && !enough(); ++i) {
      const PlanRow row = rowOf(some[i].group, some[i].schedule, some[i].byOp);
      ++record.compiled;
      if (made[i].step == 0) {
        found.problem = made[i].problem;
        simulated[row] = INFINITY;
        if (!some[i].byOp)
          input.excluded.insert(row);
        continue;
      }
      simulated[row] = made[i].step;
      error = std::max(error, 1 - made[i].step / some[i].estimate.seconds);
      if (record.step == 0 || made[i].step < record.step) {
        record.step = made[i].step, record.estimate = some[i].estimate.seconds;
        found.plan = std::move(made[i]);
      }
    }
  }
  record.lower = std::min(lower(), record.step);
}

void describe(const SearchInput &input, const SearchOutcome &outcome, plan::SearchT &record) {
  const SearchCounts &counts = outcome.counts;
  record.least = input.least;
  record.total = static_cast<uint64_t>(counts.total);
  record.evaluated = static_cast<uint64_t>(counts.evaluated);
  record.pruned_by_bound = static_cast<uint64_t>(counts.prunedByBound);
  record.pruned_by_memory = static_cast<uint64_t>(counts.prunedByMemory);
  record.refused = static_cast<uint64_t>(counts.refused);
  record.stopped_early |= outcome.stoppedEarly;
}

} // namespace

FoundPlan findPlan(SearchInput &input, SplitCosts *solved, PlanTrials &trials) {
  FoundPlan found;
  for (;;) {
    const size_t before = input.excluded.size();
    found.outcome = searchPlans(input);
    if (solved)
      addSolved(input, *solved, found.outcome);
    tryFinalists(input, trials, found);
    if (found.plan.step > 0) {
      describe(input, found.outcome, found.record);
      return found;
    }
    if (input.excluded.size() == before || found.outcome.stoppedEarly)
      return found;
  }
}

} // namespace cleave::partitioner
