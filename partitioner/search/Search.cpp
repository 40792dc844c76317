// The queue of groups by their bounds.
#include "partitioner/search/Search.h"

#include <algorithm>
#include <map>
#include <queue>
#include <set>
#include <tuple>

namespace cleave::partitioner {
namespace {

/// Measured times with other rows are bounds only as far as larger microbatches are never slower per row; kernels that
/// fill their last wave better with fewer rows are the exception.
constexpr double slack = 0.97;
/// Rows of a rank for bounds: at least so many, and as many as keep it busy for so long at the device's peak, so that
/// the fixed times of kernels and messages are a small part.
constexpr int64_t fewestRows = 16;
constexpr double busySeconds = 5e-3;

/// Stage 2 and 3 of the bounds are measured without ZeRO: what each of its stages divides among the ranks of axis dp.
PlanCosts withZero(PlanCosts use, int64_t zero, int64_t data) {
  const auto divide = [&](double &bytes, int64_t from) {
    if (zero >= from)
      bytes /= static_cast<double>(data);
  };
  for (auto &[path, layer] : use.layers) {
    divide(layer.states, 1);
    divide(layer.gradients, 2);
    divide(layer.parameters, 3);
    if (zero >= 3)
      layer.copies = 0;
  }
  return use;
}

class PlanSearch {
public:
  explicit PlanSearch(const SearchInput &input) : input(input), groups(groupsOf(input.request)) {}

  SearchOutcome run() {
    for (size_t g = 0; g < groups.size(); ++g) {
      schedules.push_back(schedulesOf(input.request, groups[g]));
      outcome.counts.total += rowsOf(g);
    }
    reference = input.measure({.rows = rowsForBounds(1)});
    if (!reference) {
      outcome.counts.refused = outcome.counts.total;
      return std::move(outcome);
    }
    for (size_t g = 0; g < groups.size(); ++g)
      if (rowsOf(g))
        push(g, 1, boundOfWork(groups[g]));
    while (!queue.empty()) {
      const Entry next = queue.top();
      queue.pop();
      if (outcome.stoppedEarly |= input.stops(); outcome.stoppedEarly || next.bound >= best) {
        outcome.counts.prunedByBound += rowsOf(next.group);
        lowest = std::min(lowest, next.bound);
        continue;
      }
      tighten(next);
    }
    std::ranges::stable_sort(outcome.candidates, {}, [](const Candidate &c) { return c.estimate.seconds; });
    outcome.lower = std::min(best, lowest);
    return std::move(outcome);
  }

private:
  struct Entry {
    double bound;
    int64_t zero;
    size_t group;
    int level;
    /// The smallest bound first; of equal ones the lowest stage of ZeRO, then the first group.
    bool operator<(const Entry &other) const {
      return std::tuple(bound, zero, group) > std::tuple(other.bound, other.zero, other.group);
    }
  };

  int64_t rowsOf(size_t group) const { return static_cast<int64_t>(schedules[group].size()); }

  void push(size_t group, int level, double bound) { queue.push({bound, groups[group].split.zero, group, level}); }

  int64_t rowsForBounds(int64_t tensor) const {
    const double ofRow =
        input.least * static_cast<double>(input.request.devices) / static_cast<double>(input.request.batch * tensor);
    int64_t rows = fewestRows;
    while (rows < input.request.batch && ofRow > 0 && static_cast<double>(rows) * ofRow < busySeconds)
      rows *= 2;
    return std::min(rows, input.request.batch);
  }

  /// The time of a rank that computes its share of `passes` seconds a row in every microbatch, and waits until its
  /// first microbatch has passed the other stages.
  static double boundOf(const PlanGroup &group, double forward, double passes) {
    constexpr double mostChunks = 8;
    const double rows = static_cast<double>(group.split.rowsOfRank()) / static_cast<double>(group.pipeline);
    return rows * (static_cast<double>(group.microbatches) * passes +
                   static_cast<double>(group.pipeline - 1) * forward / mostChunks);
  }

  double boundOfWork(const PlanGroup &group) const {
    const auto rows = static_cast<double>(rowsForBounds(1) * group.split.tensor);
    const double forward = timesOfAll(*reference, &LayerCost::forwardWork),
                 backward = timesOfAll(*reference, &LayerCost::backwardWork),
                 again = group.split.recompute == Recomputation::Full ? slack * forward : 0;
    return slack * boundOf(group, forward / rows, (forward + backward + again) / rows);
  }

  void tighten(const Entry &entry) {
    const PlanGroup &group = groups[entry.group];
    if (entry.level == 1 && !mayFit(group))
      return drop(entry.group, outcome.counts.prunedByMemory);
    switch (entry.level) {
    case 1:
      return boundOfTensorAxis(entry);
    case 2:
      return boundOfRows(entry);
    default:
      return estimate(entry);
    }
  }

  void drop(size_t group, int64_t &count) { count += rowsOf(group); }

  /// Whether parameters, gradients and states fit if they are divided evenly.
  bool mayFit(const PlanGroup &group) {
    const PlanCosts use = withZero(*reference, group.split.zero, group.split.data);
    double bytes = 0;
    for (const auto &[path, layer] : use.layers)
      bytes += times(path) * (layer.parameters + layer.gradients + layer.states);
    bytes /= static_cast<double>(group.split.tensor * group.pipeline);
    return fits(bytes);
  }

  bool fits(double bytes) {
    if (bytes > input.capacity)
      least = least > 0 ? std::min(least, bytes) : bytes;
    outcome.leastBytes = least;
    return bytes <= input.capacity;
  }

  /// How many layers of the model have the costs of a measured one.
  double times(const std::string &measured) const {
    return static_cast<double>(std::ranges::count(input.layers, measured, &SearchLayer::measured));
  }

  double timesOfAll(const PlanCosts &use, double LayerCost::*time) const {
    double seconds = 0;
    for (const auto &[path, layer] : use.layers)
      seconds += times(path) * layer.*time;
    return seconds;
  }

  void boundOfTensorAxis(const Entry &entry) {
    const PlanGroup &group = groups[entry.group];
    const int64_t rows = rowsForBounds(group.split.tensor);
    const PlanCosts *use =
        input.measure({.tensor = group.split.tensor, .rows = rows, .sequence = group.split.sequence});
    if (!use)
      return drop(entry.group, outcome.counts.refused);
    const double forward = timesOfAll(*use, &LayerCost::forward) / static_cast<double>(rows),
                 backward = timesOfAll(*use, &LayerCost::backward) / static_cast<double>(rows);
    push(entry.group, 2, std::max(entry.bound, slack * boundOf(group, forward, forward + backward)));
  }

  void boundOfRows(const Entry &entry) {
    const PlanGroup &group = groups[entry.group];
    SplitChoice split = group.split;
    split.data = 1, split.rows = group.split.rowsOfRank(), split.zero = 0;
    const PlanCosts *use = input.measure(split);
    if (!use)
      return drop(entry.group, outcome.counts.refused);
    const PlanCosts divided = withZero(*use, group.split.zero, group.split.data);
    const Estimator estimator(input.layers, group, divided, input.secondsPerByte(group));
    if (!fits(estimator.leastBytes()))
      return drop(entry.group, outcome.counts.prunedByMemory);
    double bound = INFINITY;
    std::set<int64_t> chunks;
    for (const ScheduleChoice &schedule : schedules[entry.group])
      if (chunks.insert(schedule.chunks).second)
        bound = std::min(bound, estimator.lowest(schedule.chunks));
    push(entry.group, 3, std::max(entry.bound, slack * bound));
  }

  /// Splitting gradients and parameters among the ranks of axis dp never takes less time, so it is tried only where
  /// some schedule does not fit without it.
  bool fitsWithLess(const PlanGroup &group) const {
    PlanGroup less = group;
    --less.split.zero;
    const auto found = fitting.find(key(less));
    return group.split.zero >= 2 && found != fitting.end();
  }

  static std::tuple<SplitChoice, int64_t> key(const PlanGroup &group) { return {group.split, group.pipeline}; }

  void estimate(const Entry &entry) {
    const PlanGroup &group = groups[entry.group];
    if (fitsWithLess(group)) {
      fitting.insert(key(group));
      return drop(entry.group, outcome.counts.prunedByBound);
    }
    const PlanCosts *use = input.measure(group.split);
    if (!use)
      return drop(entry.group, outcome.counts.refused);
    const Estimator estimator(input.layers, group, *use, input.secondsPerByte(group));
    bool allFit = true;
    for (const ScheduleChoice &schedule : schedules[entry.group]) {
      const double lower = estimator.lowest(schedule.chunks);
      if (lower >= best) {
        ++outcome.counts.prunedByBound;
        lowest = std::min(lowest, lower);
        continue;
      }
      const Estimate found = estimator.of(schedule);
      if (!fits(found.bytes)) {
        ++outcome.counts.prunedByMemory;
        allFit = false;
        continue;
      }
      ++outcome.counts.evaluated;
      best = std::min(best, found.seconds);
      lowest = std::min(lowest, found.lower);
      outcome.candidates.push_back({group, schedule, found});
    }
    if (allFit)
      fitting.insert(key(group));
  }

  const SearchInput &input;
  const std::vector<PlanGroup> groups;
  std::vector<std::vector<ScheduleChoice>> schedules; ///< by group
  const PlanCosts *reference = nullptr;
  std::priority_queue<Entry> queue;
  std::set<std::tuple<SplitChoice, int64_t>> fitting;
  SearchOutcome outcome;
  double best = INFINITY, lowest = INFINITY, least = 0;
};

} // namespace

SearchOutcome searchPlans(const SearchInput &input) { return PlanSearch(input).run(); }

} // namespace cleave::partitioner
