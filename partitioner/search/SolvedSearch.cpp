#include "partitioner/search/SolvedSearch.h"

#include "partitioner/search/FitMemory.h"
#include "partitioner/search/ScaledCosts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <tuple>

namespace cleave::partitioner {
namespace {

/// Shardings are solved for a mesh where its computation alone takes at most this part of the best plan's time.
constexpr double worthSolving = 0.99;

/// The groups of one mesh.
class SolvedMesh {
public:
  SolvedMesh(const SearchInput &input, const SearchedMesh &mesh, double &best, SearchOutcome &outcome)
      : input(input), best(best), outcome(outcome) {
    for (const auto &[usual, bound] : mesh.groups) {
      Row row{usual, {}, bound};
      row.group.split.solved = true;
      for (ScheduleChoice &schedule : schedulesOf(input.space, row.group)) {
        ++outcome.counts.total;
        if (input.excluded.contains(rowOf(row.group, schedule)))
          ++outcome.counts.refused;
        else
          row.schedules.push_back(std::move(schedule));
      }
      work = std::min(work, row.bound);
      if (!row.schedules.empty())
        rows.push_back(std::move(row));
    }
    if (!rows.empty())
      once = groupOnce();
  }

  bool isWorthSolving() const { return work < worthSolving * best; }

  /// What run() measures first.
  std::vector<SplitCosts::Wanted> wanted() const {
    std::vector<SplitCosts::Wanted> first;
    for (const Site site : input.places->positions(once))
      first.emplace_back(once.split, site);
    return first;
  }

  void run() {
    constexpr int most = 3;                      // groups in a row that are no better than the best of the mesh
    if (!costsOnce(once, Recomputation::None)) { // the solver finds nothing better than default shardings
      for (Row &row : rows)
        drop(row, outcome.counts.prunedByBound);
      return;
    }
    for (Row &row : rows)
      bound(row);
    std::ranges::stable_sort(rows, {}, [](const Row &row) { return std::pair(row.bound, row.group.split.zero); });
    constexpr double gain = 1.05; // of ZeRO, where a plan fits without it
    double own = INFINITY;
    int failed = 0;
    std::map<std::pair<int64_t, Recomputation>, double> without; // by rows: seconds without ZeRO
    for (size_t r = 0; r < rows.size() && failed < most && rows[r].bound < best; ++r) {
      throwIfStopped(input.stops);
      const SplitChoice &split = rows[r].group.split;
      if (rows[r].schedules.empty() || fitsWithLess(rows[r].group))
        continue;
      const auto less = without.find({split.rows, split.recompute});
      if (split.zero > 0 && less != without.end() && less->second > gain * own)
        continue;
      prepareFrom(r);
      const double seconds = estimate(rows[r]);
      if (split.zero == 0 && seconds < INFINITY)
        without[{split.rows, split.recompute}] = seconds;
      failed = seconds < own ? 0 : failed + 1;
      own = std::min(own, seconds);
    }
    leave();
  }

  /// Counts what was not looked at.
  void leave() {
    for (Row &row : rows) {
      if (row.schedules.empty())
        continue;
      if (!fitsWithLess(row.group))
        outcome.lowest = std::min(outcome.lowest, row.bound);
      drop(row, outcome.counts.prunedByBound);
    }
  }

  bool isEmpty() const { return rows.empty(); }

private:
  struct Row {
    PlanGroup group;
    std::vector<ScheduleChoice> schedules; ///< that are not counted yet
    double bound = 0;
  };

  void drop(Row &row, int64_t &count) {
    count += std::ssize(row.schedules);
    row.schedules.clear();
  }

  /// The group that is solved, and measured first: of those whose microbatches just fill the pipeline, and of those
  /// with fewer, the one that computes least while it fills and empties. Small models do not gain from microbatches.
  PlanGroup groupOnce() const {
    int64_t most = std::numeric_limits<int64_t>::max();
    for (const Row &row : rows)
      if (row.group.pipeline == 1 || row.group.microbatches >= 4 * row.group.pipeline)
        most = std::min(most, row.group.microbatches);
    const auto order = [&](const Row &row) {
      const auto microbatches = static_cast<double>(row.group.microbatches);
      const double filled = row.bound * (microbatches + static_cast<double>(row.group.pipeline - 1)) / microbatches;
      return std::tuple(row.group.microbatches > most, filled, microbatches);
    };
    PlanGroup group = std::ranges::min_element(rows, {}, order)->group;
    group.split.zero = 0, group.split.recompute = Recomputation::None;
    return group;
  }

  /// The costs of that group with another recomputation, at the sites of a group of the mesh; nothing if they cannot be
  /// measured.
  const std::optional<Positions> &costsOnce(const PlanGroup &group, Recomputation recompute) {
    const std::vector<Site> &sites = input.places->positions(group);
    const auto [found, fresh] = costs.try_emplace({recompute, sites});
    if (!fresh)
      return found->second;
    SplitChoice split = once.split;
    split.recompute = recompute;
    Positions positions;
    for (const Site site : sites) {
      const SiteCosts *use = input.costs->of(split, site);
      if (!use)
        return found->second;
      positions.push_back(*use);
    }
    return found->second = std::move(positions);
  }

  /// About the costs of a group; nothing if they cannot be measured.
  std::optional<Positions> scaled(const PlanGroup &group, Recomputation recompute) {
    std::optional<Positions> positions = costsOnce(group, recompute);
    if (positions)
      for (SiteCosts &site : *positions)
        site = withZero(
            withRows(std::move(site),
                     static_cast<double>(group.split.rowsOfRank()) / static_cast<double>(once.split.rowsOfRank()), 1),
            group.split.zero, group.split.data);
    return positions;
  }

  /// Finds about what a group takes; drops it if it is not expected to fit.
  void bound(Row &row) {
    const PlanGroup &group = row.group;
    const bool more = group.split.recompute != Recomputation::None || recomputesMore(input, group);
    const Positions light = *scaled(group, Recomputation::None);
    std::optional<Positions> full;
    double least = INFINITY;
    const Estimator estimator = estimatorOf(input, group, pointersTo(light));
    for (const ScheduleChoice &schedule : row.schedules) {
      const double seconds =
          std::max(estimator.lowest(schedule), secondsWithSums(group, light.front().front().costs, false));
      if (seconds >= std::min(best, least))
        least = std::min(least, seconds); // whether it fits or not
      else if (fits(estimator, schedule))
        least = seconds;
      else if (more) {
        if (!full)
          full = scaled(group, Recomputation::Full);
        if (full && fits(estimatorOf(input, group, pointersTo(*full)), schedule))
          least = seconds;
      }
    }
    if (least == INFINITY)
      drop(row, outcome.counts.prunedByMemory);
    row.bound = std::max(row.bound, least);
  }

  static bool fits(const Estimator &estimator, const ScheduleChoice &schedule) {
    constexpr double error = 1.1; // of memory in proportion to the rows
    const std::vector<size_t> begins = estimator.cut(schedule);
    return !begins.empty() && estimator.memoryOf(schedule, begins, error).fits();
  }

  /// Seconds of a rank with the average share of the layers. The last backward pass hides a part of their sums of
  /// gradients. ZeRO scatters the sums, which takes half as long, and gathers parameters while the first forward pass
  /// runs. `use`: measured without ZeRO, unless `measuredWithZero`.
  double secondsWithSums(const PlanGroup &group, const PlanCosts &use, bool measuredWithZero) const {
    double forward = 0, backward = 0, sums = 0, gathers = 0;
    for (const SearchLayer &one : input.layers)
      if (const auto found = use.layers.find(one.measured); found != use.layers.end()) {
        const LayerCost &layer = found->second;
        forward += layer.forward, backward += layer.backward, sums += layer.sums, gathers += layer.gathers;
        for (const BucketedSum &sum : layer.buckets)
          sums += secondsOf(use.groups[sum.group], plan::CollectiveKind::AllReduce, sum.bytes);
      }
    if (group.split.zero > 0 && !measuredWithZero)
      sums /= 2, gathers = sums * input.gatherShare / input.sumShare;
    return (static_cast<double>(group.microbatches) * (forward + backward) + std::max(0.0, sums - backward) +
            std::max(0.0, gathers - forward)) /
           static_cast<double>(group.pipeline);
  }

  /// Splitting gradients and parameters among the ranks of axis dp never takes less time, so it is tried only where
  /// some schedule does not fit without it.
  bool fitsWithLess(const PlanGroup &group) const {
    return std::ranges::any_of(allFit, [&](const PlanGroup &less) {
      return group.split.zero >= 2 && less.split.zero < group.split.zero && less.split.rows == group.split.rows &&
             less.split.recompute <= group.split.recompute;
    });
  }

  /// Measures several groups at the same time.
  void prepareFrom(size_t row) {
    constexpr size_t ahead = 2;
    std::vector<SplitCosts::Wanted> wanted;
    if (row % ahead == 0)
      for (size_t r = row; r < std::min(rows.size(), row + ahead); ++r)
        if (!rows[r].schedules.empty() && rows[r].bound < best)
          for (const Site site : input.places->positions(rows[r].group))
            wanted.emplace_back(rows[r].group.split, site);
    input.costs->prepare(wanted);
  }

  /// The least seconds of its plans, as far as they are not above the best plan's, or a bound; infinite if none fits.
  double estimate(Row &row) {
    const PlanGroup &group = row.group;
    const auto positions = measurePositions(input, group, recomputeOf(group));
    if (!positions) {
      drop(row, outcome.counts.refused);
      return INFINITY;
    }
    bool all = true;
    double least = INFINITY;
    const Estimator estimator = estimatorOf(input, group, *positions);
    const double sums = secondsWithSums(group, positions->front()->front().costs, true);
    while (!row.schedules.empty()) {
      const ScheduleChoice schedule = row.schedules.back();
      if (const double lower = std::max(estimator.lowest(schedule), sums); lower >= best) {
        ++outcome.counts.prunedByBound;
        outcome.lowest = std::min(outcome.lowest, lower);
        least = std::min(least, lower);
      } else {
        FastestPlan found = fastestOf(input, group, schedule, best, [](const auto &...) { return 0.0; });
        all &= found.allFit;
        if (found.plan) {
          ++outcome.counts.evaluated;
          least = std::min(least, found.plan->estimate.seconds), best = std::min(best, least);
          outcome.candidates.push_back(std::move(*found.plan));
        } else
          ++outcome.counts.prunedByMemory;
      }
      row.schedules.pop_back();
    }
    if (all)
      allFit.push_back(group);
    return least;
  }

  const SearchInput &input;
  double &best;
  SearchOutcome &outcome;
  std::vector<Row> rows;
  double work = INFINITY; ///< seconds, the least of any group
  PlanGroup once;         ///< see groupOnce
  std::map<std::pair<Recomputation, std::vector<Site>>, std::optional<Positions>> costs; ///< see costsOnce
  std::vector<PlanGroup> allFit;
};

/// All orders of the axes of a mesh: their problems differ in the links alone.
struct SolvedSizes {
  std::vector<SolvedMesh> orders;
  double promise = INFINITY;
};

} // namespace

void searchSolved(const SearchInput &input, const std::vector<SearchedMesh> &meshes, double &best,
                  SearchOutcome &outcome) {
  constexpr size_t ahead = 2;
  constexpr int most = 16; // meshes in a row without a better plan
  int failed = 0;
  std::map<AxisSizes, SolvedSizes> bySizes;
  for (const SearchedMesh &mesh : meshes)
    if (SolvedMesh one(input, mesh, best, outcome); !one.isEmpty()) {
      SolvedSizes &all = bySizes[mesh.groups.front().group.sizes];
      all.promise = std::min(all.promise, mesh.promise);
      all.orders.push_back(std::move(one));
    }
  std::vector<SolvedSizes> solved;
  for (auto &[sizes, orders] : bySizes)
    solved.push_back(std::move(orders));
  std::ranges::stable_sort(solved, {}, &SolvedSizes::promise);
  const auto unlessStopped = [&](auto work) {
    if (!outcome.stoppedEarly)
      try {
        throwIfStopped(input.stops);
        work();
      } catch (const Stopped &) {
        outcome.stoppedEarly = true;
      }
  };
  for (size_t m = 0; m < solved.size(); ++m) {
    const double before = best;
    if (m % ahead == 0 && failed < most)
      unlessStopped([&] {
        std::vector<SplitCosts::Wanted> wanted;
        for (size_t next = m; next < std::min(solved.size(), m + ahead); ++next)
          for (const SolvedMesh &mesh : solved[next].orders)
            if (mesh.isWorthSolving())
              std::ranges::move(mesh.wanted(), std::back_inserter(wanted));
        input.costs->lookBelow(best);
        input.costs->prepare(wanted);
      });
    for (SolvedMesh &mesh : solved[m].orders) {
      if (mesh.isWorthSolving() && failed < most)
        unlessStopped([&] { mesh.run(); });
      mesh.leave();
    }
    failed = best < before ? 0 : failed + 1;
  }
}

} // namespace cleave::partitioner
