#include "partitioner/search/FindPlan.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

namespace cleave::partitioner {
namespace {

constexpr uint32_t triedAtLeast = 4; ///< plans of the whole model, if one of them fits and none is near the bound
constexpr uint32_t triedAtMost = 12; ///< while estimates, corrected by what was seen, promise a faster plan
constexpr size_t triedTogether = 2;  ///< of them at the same time
constexpr size_t lookedAtMost = 64;
/// The part by which estimates of solved shardings may be too long: messages inside the passes hide behind more of a
/// real plan's steps than where they are measured.
constexpr double errorOfSolved = 0.25;
/// A plan at most this part above the bound ends the trials, if no estimate was longer by more.
constexpr double nearBound = 0.01;

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
             .emplace(split.data, split.tensor, candidate.group.split.solved, candidate.estimate.seconds,
                      candidate.estimate.bytes)
             .second)
      continue;
    const bool differs = ++alike[{split.data, split.tensor, group.pipeline, candidate.group.split.solved}] <= mostAlike;
    (differs ? chosen : others).push_back(&candidate);
  }
  chosen.insert(chosen.end(), others.begin(), others.end());
  const auto usual = std::ranges::find_if(chosen, [](const Candidate *one) { return !one->group.split.solved; });
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
  plan::SearchT &record = found.record;
  const std::vector<Candidate> &candidates = found.outcome.candidates;
  const std::vector<Candidate> finalists = finalistsOf(candidates, lookedAtMost, triedAtLeast);
  double error = 0; // the part of an estimate by which it was too long
  std::map<PlanRow, double> simulated;
  const auto lower = [&] { return lowerBound(candidates, simulated, found.outcome.lowest); };
  const auto close = [&] { return record.step > 0 && error <= nearBound && record.step <= (1 + nearBound) * lower(); };
  const auto promises = [&](const Candidate &plan) {
    const double most = std::max(error, plan.group.split.solved ? errorOfSolved : 0);
    return record.step == 0 || record.compiled < triedAtLeast ||
           (record.compiled < triedAtMost && (1 - most) * plan.estimate.seconds < record.step);
  };
  for (size_t at = 0; at < finalists.size() && !close();) {
    const bool stopped = input.stops && input.stops(), first = record.step == 0;
    record.stopped_early |= stopped;
    if (stopped && !first)
      break;
    std::vector<Candidate> some;
    for (; at < finalists.size() && some.size() < (stopped ? 1 : triedTogether); ++at)
      if (promises(finalists[at]))
        some.push_back(finalists[at]);
    if (some.empty())
      break;
    std::vector<TriedPlan> made;
    try {
      made = trials.tried(some, first ? Stops() : input.stops);
    } catch (const Stopped &) {
      record.stopped_early = true;
      break;
    }
    for (size_t i = 0; i < made.size(); ++i) {
      const PlanRow row = rowOf(some[i].group, some[i].schedule);
      ++record.compiled;
      if (made[i].step == 0) {
        found.problem = made[i].problem;
        simulated[row] = INFINITY;
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

FoundPlan findPlan(SearchInput &input, PlanTrials &trials) {
  FoundPlan found;
  for (;;) {
    const size_t before = input.excluded.size();
    found.outcome = searchPlans(input);
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
