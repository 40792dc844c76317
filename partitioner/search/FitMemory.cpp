#include "partitioner/search/FitMemory.h"

#include "partitioner/strategy/DecisionTable.h"

#include <algorithm>
#include <ranges>
#include <utility>

namespace cleave::partitioner {

Recomputation moreThan(Recomputation kind) {
  return kind == Recomputation::None ? Recomputation::Selective : Recomputation::Full;
}

bool recomputesMore(const SearchInput &input, const PlanGroup &group) {
  return group.split.recompute != Recomputation::Full && !ofEveryLayer(input.space.asked.pins.recompute);
}

namespace {

class RowFitter {
public:
  RowFitter(const SearchInput &input, const PlanGroup &group, const ScheduleChoice &schedule, double best,
            const BoundOfMore &boundOfMore)
      : input(input), group(group), schedule(schedule), best(best), boundOfMore(boundOfMore) {}

  FastestPlan run() {
    std::vector<Recomputation> recompute = recomputeOf(group), less;
    for (;;) {
      const auto positions = measurePositions(input, group, recompute);
      if (!positions)
        return std::move(found);
      Estimator estimator = estimatorOf(input, group, *positions);
      const std::vector<size_t> begins = estimator.cut(schedule);
      const Estimate balanced = consider(estimator, begins, recompute);
      if (const std::vector<size_t> other = estimator.cutBySends(schedule); !other.empty() && other != begins)
        consider(estimator, other, recompute);
      if (balanced.fits()) {
        if (!less.empty())
          if (Candidate mixed = recomputeLess(estimator, begins, recompute, less);
              mixed.estimate.fits() && mixed.estimate.seconds < found.plan->estimate.seconds)
            found.plan = std::move(mixed);
        return std::move(found);
      }
      found.allFit = false;
      if (group.pipeline > 1)
        consider(estimator, estimator.cutToFit(schedule), recompute);
      less = recompute;
      for (const int64_t position : balanced.lacking)
        if (Recomputation &kind = recompute[static_cast<size_t>(position)];
            recomputesMore(input, group) && kind != Recomputation::Full)
          kind = moreThan(kind);
      if (recompute == less || boundOfMore(*positions, balanced, recompute) >= best)
        return std::move(found);
    }
  }

private:
  Estimate consider(const Estimator &estimator, const std::vector<size_t> &begins,
                    const std::vector<Recomputation> &recompute) {
    Estimate estimate = estimator.atLeast(schedule, begins);
    if (estimate.seconds < near * best)
      estimate = estimator.of(schedule, begins);
    if (!estimate.fits() &&
        (found.closest.bytes == 0 || estimate.bytes - estimate.capacity < found.closest.bytes - found.closest.capacity))
      found.closest = estimate;
    if (estimate.fits() && (!found.plan || estimate.seconds < found.plan->estimate.seconds))
      found.plan = {
          group, schedule, estimate, begins, recomputeOfLayers(group, schedule, begins, recompute, input.layers.size()),
          {}};
    return estimate;
  }

  /// A plan that fits, of whose layers as many recompute less as still fit: the last ones of each position, whose
  /// backward passes come first, so that what they keep is freed before others compute again what they do not keep.
  Candidate recomputeLess(Estimator &estimator, const std::vector<size_t> &begins,
                          const std::vector<Recomputation> &recompute, const std::vector<Recomputation> &less) const {
    std::vector<std::vector<size_t>> own(recompute.size()); // layers that may recompute less
    const std::vector<size_t> positionOf = positionsOf(schedule.shapeOf(group), begins, input.layers.size());
    for (size_t i = 0; i < positionOf.size(); ++i)
      if (recompute[positionOf[i]] != less[positionOf[i]] && input.layers[i].ownRule)
        own[positionOf[i]].push_back(i);
    const PositionCosts lighter = *measurePositions(input, group, less);
    const auto mix = [&](const std::vector<size_t> &counts) {
      std::vector<bool> layers(input.layers.size());
      for (size_t p = 0; p < own.size(); ++p)
        for (size_t i = own[p].size() - counts[p]; i < own[p].size(); ++i)
          layers[own[p][i]] = true;
      estimator.mix(lighter, layers);
      return layers;
    };
    std::vector<size_t> counts(own.size()), tooMany;
    for (const auto &layers : own)
      tooMany.push_back(layers.size() + 1);
    const auto open = [&](size_t p) { return counts[p] + 1 < tooMany[p]; };
    while (std::ranges::any_of(std::views::iota(size_t(0), own.size()), open)) {
      std::vector<size_t> tried = counts;
      for (size_t p = 0; p < own.size(); ++p)
        tried[p] = (counts[p] + tooMany[p]) / 2;
      mix(tried);
      const std::vector<int64_t> lacking = estimator.memoryOf(schedule, begins, memoryMargin).lacking;
      for (size_t p = 0; p < own.size(); ++p)
        if (open(p))
          (std::ranges::count(lacking, static_cast<int64_t>(p)) ? tooMany : counts)[p] = tried[p];
    }
    const std::vector<bool> layers = mix(counts);
    Candidate plan{group, schedule, estimator.of(schedule, begins), begins, {}, {}};
    setRecompute(plan, recompute, less, layers);
    return plan;
  }

  const SearchInput &input;
  const PlanGroup &group;
  const ScheduleChoice &schedule;
  const double best;
  const BoundOfMore &boundOfMore;
  FastestPlan found;
};

} // namespace

FastestPlan fastestOf(const SearchInput &input, const PlanGroup &group, const ScheduleChoice &schedule, double best,
                      const BoundOfMore &boundOfMore) {
  return RowFitter(input, group, schedule, best, boundOfMore).run();
}

} // namespace cleave::partitioner
