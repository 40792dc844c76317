// The queue of groups by their bounds.
#include "partitioner/search/Search.h"

#include "partitioner/search/FitMemory.h"
#include "partitioner/search/ScaledCosts.h"
#include "partitioner/search/SolvedSearch.h"
#include "partitioner/strategy/DecisionTable.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <ranges>
#include <set>
#include <tuple>

namespace cleave::partitioner {
namespace {

/// Times measured with more rows are bounds only as far as larger microbatches are never slower per row; kernels that
/// fill their last wave better with fewer rows are the exception.
constexpr double slack = 0.97;

class PlanSearch {
public:
  explicit PlanSearch(const SearchInput &input) : input(input), groups(groupsOf(input.space, *input.places)) {
    for (const SearchLayer &layer : input.layers)
      ++times[layer.measured];
    for (size_t i = 0; i + 1 < input.layers.size(); ++i)
      leastSent = std::min(leastSent, input.layers[i].sentBytes);
    for (size_t g = 0; g < groups.size(); ++g)
      numbers.emplace(key(groups[g]), g);
    bounds.resize(groups.size());
    workBounds.resize(groups.size());
    outcome.lowest = INFINITY;
  }

  SearchOutcome run() {
    for (size_t g = 0; g < groups.size(); ++g) {
      schedules.push_back(schedulesOf(input.space, groups[g]));
      manyRows = std::max(manyRows, groups[g].split.rowsOfRank());
      outcome.counts.total += rowsOf(g);
      outcome.counts.refused +=
          static_cast<int64_t>(std::erase_if(schedules.back(), [&](const ScheduleChoice &schedule) {
            return input.excluded.contains(rowOf(groups[g], schedule));
          }));
      excludesSome = outcome.counts.refused > 0;
    }
    for (size_t g = 0; g < groups.size(); ++g)
      if (rowsOf(g))
        unlessStopped({0, 0, g, Level::Work}, [&] {
          if (workBounds[g] = boundOfWork(groups[g]))
            push(g, Level::Work, *workBounds[g]);
          else
            drop(g, outcome.counts.refused);
        });
    while (!queue.empty()) {
      const Entry next = queue.top();
      queue.pop();
      if (next.bound >= best) {
        leave(next, rowsOf(next.group));
        continue;
      }
      unlessStopped(next, [&] {
        prepare(next);
        tighten(next);
      });
    }
    if (input.space.solves)
      searchSolved(input, searchedMeshes(), best, outcome);
    moveCutsOfBest();
    return std::move(outcome);
  }

private:
  /// Groups that may have solved shardings, too: the solver also chooses how activations are split, and where ranks may
  /// recompute more, they do so as far as it takes.
  std::vector<SearchedMesh> searchedMeshes() const {
    std::map<std::pair<AxisSizes, AxisOrder>, SearchedMesh> meshes;
    for (size_t g = 0; g < groups.size(); ++g) {
      const auto &[split, pipeline, microbatches, sizes, order] = groups[g];
      SearchedMesh &mesh =
          meshes.try_emplace({sizes, order}, SearchedMesh{.groups = {}, .promise = INFINITY}).first->second;
      mesh.promise = std::min(mesh.promise, bounds[g]);
      if (workBounds[g] && split.data * split.tensor > 1 && !split.sequence &&
          (split.recompute == Recomputation::None || ofEveryLayer(input.space.asked.pins.recompute)))
        mesh.groups.push_back({groups[g], *workBounds[g]});
    }
    std::vector<SearchedMesh> all;
    for (auto &[key, mesh] : meshes)
      all.push_back(std::move(mesh));
    return all;
  }

  /// What the bound of a group comes from so far, see the header. The next thing is a better bound or, after Mesh, the
  /// estimates.
  enum class Level : uint8_t { Work, TensorAxis, Rows, Mesh };

  struct Entry {
    double bound;
    int64_t zero;
    size_t group;
    Level level;
    /// The smallest bound first; of equal ones the lowest stage of ZeRO, then the first group.
    bool operator<(const Entry &other) const {
      return std::tuple(bound, zero, group) > std::tuple(other.bound, other.zero, other.group);
    }
  };

  /// Counts rows of an entry that are not looked at.
  void leave(const Entry &entry, int64_t rows) {
    outcome.counts.prunedByBound += rows;
    outcome.lowest = std::min(outcome.lowest, entry.bound);
  }

  /// Works on an entry, unless the search stops before or while it does: then leaves the rows that it has not counted.
  void unlessStopped(const Entry &entry, auto work) {
    const int64_t before = outcome.counts.known();
    if (!outcome.stoppedEarly)
      try {
        throwIfStopped(input.stops);
        return work();
      } catch (const Stopped &) {
        outcome.stoppedEarly = true;
      }
    leave(entry, rowsOf(entry.group) - (outcome.counts.known() - before));
  }

  void moveCutsOfBest() {
    int64_t passes = 8'000'000;
    const auto sort = [&] {
      std::ranges::stable_sort(outcome.candidates, {}, [](const Candidate &c) { return c.estimate.seconds; });
    };
    sort();
    try {
      for (Candidate &plan : outcome.candidates)
        if (plan.estimate.seconds < near * best && passes > 0) {
          throwIfStopped(input.stops);
          moveCuts(input, plan, passes);
          best = std::min(best, plan.estimate.seconds);
        }
    } catch (const Stopped &) {
      outcome.stoppedEarly = true;
    }
    sort();
  }

  int64_t rowsOf(size_t group) const { return static_cast<int64_t>(schedules[group].size()); }

  void push(size_t group, Level level, double bound) {
    bounds[group] = bound;
    queue.push({bound, groups[group].split.zero, group, level});
  }

  /// What tighten() measures first for an entry.
  std::vector<SplitCosts::Wanted> wantedBy(const Entry &entry) {
    const PlanGroup &group = groups[entry.group];
    std::vector<SplitCosts::Wanted> wanted;
    if (entry.level == Level::Rows && !fitsWithLess(group) && !fitsWithLessRecomputation(group) &&
        boundOfOthers(entry.group) <= entry.bound)
      for (const Site site : input.places->positions(group))
        wanted.emplace_back(group.split, site);
    if (entry.level < Level::Rows)
      for (const std::vector<Site> &sites : input.places->parts(group, group.split.tensor))
        for (const Site site : sites)
          wanted.emplace_back(entry.level == Level::Work ? splitOfTensorAxis(group, group.split.recompute)
                                                         : splitOfRows(group, group.split.recompute),
                              site);
    if (entry.level == Level::Mesh && ranksLack(entry.group))
      for (const Site site : input.places->positions(group)) {
        SplitChoice more = group.split;
        more.recompute = moreThan(more.recompute);
        wanted.emplace_back(more, site);
      }
    return wanted;
  }

  /// Whether ranks that run the first schedule of a group, which is measured, lack memory and may recompute more.
  bool ranksLack(size_t number) {
    const PlanGroup &group = groups[number];
    if (!recomputesMore(input, group))
      return false;
    auto [found, fresh] = lacking.try_emplace(number, false);
    if (fresh) {
      const Estimator estimator = estimatorOf(input, group, *measurePositions(input, group, recomputeOf(group)));
      const ScheduleChoice &schedule = schedules[number].front();
      found->second = !estimator.of(schedule, estimator.cut(schedule)).fits();
    }
    return found->second;
  }

  /// Has measured what the next entry needs and, so that this keeps several processors busy, what those behind it need.
  /// How many does not depend on the processors, and no result on what is measured.
  void prepare(const Entry &next) {
    constexpr size_t ahead = 4;
    std::vector<SplitCosts::Wanted> wanted;
    size_t trials = 0; // that were not asked for before
    const auto add = [&](const Entry &entry) {
      for (SplitCosts::Wanted &one : wantedBy(entry))
        if (asked.insert(one).second)
          trials += askedTrials.insert(input.costs->trialOf(one.first)).second, wanted.push_back(std::move(one));
    };
    add(next);
    if (wanted.empty())
      return;
    std::vector<Entry> seen;
    while (trials < ahead && seen.size() < 4 * ahead && !queue.empty() && queue.top().bound < best) {
      seen.push_back(queue.top());
      queue.pop();
      add(seen.back());
    }
    for (const Entry &entry : seen)
      queue.push(entry);
    input.costs->prepare(wanted);
  }

  SplitChoice splitOfTensorAxis(const PlanGroup &group, Recomputation recompute) const {
    return {.tensor = group.split.tensor,
            .rows = rowsOfBounds(group),
            .recompute = recompute,
            .sequence = group.split.sequence};
  }

  static SplitChoice splitOfRows(const PlanGroup &group, Recomputation recompute) {
    SplitChoice split = group.split;
    split.data = 1, split.rows = group.split.rowsOfRank(), split.zero = 0, split.recompute = recompute;
    return split;
  }

  std::optional<Positions> measureParts(const PlanGroup &group, const SplitChoice &split) {
    Positions positions;
    for (const std::vector<Site> &sites : input.places->parts(group, split.tensor)) {
      SiteCosts &position = positions.emplace_back();
      for (const Site site : sites) {
        const SiteCosts *use = input.costs->of(split, site);
        if (!use)
          return std::nullopt;
        position.insert(position.end(), use->begin(), use->end());
      }
      std::ranges::stable_sort(position, std::greater(), [](const KindCosts &one) {
        return one.costs.total.forwardWork + one.costs.total.backwardWork;
      });
    }
    return positions;
  }

  /// Seconds that the layers take, divided among the positions so that the longest takes as little as possible, or
  /// less: weights of the positions which add up to one bound the longest by the sum of each layer's least weighted
  /// time.
  double leastShare(const PlanGroup &group, const PositionCosts &positions, auto seconds) const {
    if (positions.size() == 1)
      return sumOf(positions.front()->front().costs, seconds) / static_cast<double>(group.pipeline);
    double speeds = 0;
    std::vector<double> weights;
    for (const SiteCosts *site : positions) {
      weights.push_back(1 / std::max(sumOf(site->front().costs, seconds), 1e-30));
      speeds += weights.back();
    }
    double share = 0;
    for (const auto &[path, count] : times) {
      double least = INFINITY;
      for (size_t p = 0; p < positions.size(); ++p) {
        const PlanCosts &use = positions[p]->front().costs;
        const auto layer = use.layers.find(path);
        least = std::min(least, layer == use.layers.end() ? 0 : weights[p] / speeds * seconds(layer->second));
      }
      share += count * least;
    }
    return share;
  }

  double sumOf(const PlanCosts &use, auto seconds) const {
    double sum = 0;
    for (const auto &[path, layer] : use.layers)
      if (const auto found = times.find(path); found != times.end())
        sum += found->second * seconds(layer);
    return sum;
  }

  /// The time of a rank that computes its share of the passes in every microbatch, and waits until its first microbatch
  /// has passed the other stages.
  double boundOf(const PlanGroup &group, const PositionCosts &positions, auto forward, auto passes) const {
    constexpr double mostChunks = 8;
    const double share = leastShare(group, positions, passes);
    // Uneven stages may let the busiest rank begin at once.
    const double wait = positions.size() > 1 ? 0
                                             : static_cast<double>(group.pipeline - 1) / mostChunks *
                                                   leastShare(group, positions, forward);
    return slack * (static_cast<double>(group.microbatches) * share + wait);
  }

  /// Rows for bounds: the most of a rank, or those of a microbatch if the model's code fixes their number.
  int64_t rowsOfBounds(const PlanGroup &group) const {
    return input.costs->takesRows(manyRows) ? manyRows : group.split.rows;
  }

  std::optional<double> boundOfWork(const PlanGroup &group) {
    const int64_t rows = rowsOfBounds(group);
    if (!input.costs->takesRows(rows))
      return std::nullopt;
    const auto positions = measureParts(group, {.rows = rows});
    if (!positions)
      return std::nullopt;
    const double share = static_cast<double>(group.split.rowsOfRank()) / static_cast<double>(rows * group.split.tensor);
    const auto shareOf = [&](double work, double fixed) { return std::lerp(std::min(work, fixed), work, share); };
    const auto forward = [&](const LayerCost &layer) { return shareOf(layer.forwardWork, layer.forwardFixed); };
    return boundOf(group, pointersTo(*positions), forward, [&](const LayerCost &layer) {
      return forward(layer) + shareOf(layer.backwardWork, layer.backwardFixed);
    });
  }

  void tighten(const Entry &entry) {
    switch (entry.level) {
    case Level::Work:
      return mayFit(groups[entry.group]) ? boundOfTensorAxis(entry) : drop(entry.group, outcome.counts.prunedByMemory);
    case Level::TensorAxis:
      return boundOfRows(entry);
    case Level::Rows:
      return boundOfMesh(entry);
    case Level::Mesh:
      return estimate(entry);
    }
  }

  void drop(size_t group, int64_t &count) { count += rowsOf(group); }

  /// Whether parameters, gradients and states fit if they are divided evenly.
  bool mayFit(const PlanGroup &group) {
    const Positions positions = *measureParts(group, {.rows = rowsOfBounds(group)});
    const SiteCosts use = withZero({positions.front().front()}, group.split.zero, group.split.data);
    const double bytes = sumOf(
        use.front().costs, [](const LayerCost &layer) { return layer.parameters + layer.gradients + layer.states; });
    double capacity = 0;
    for (int64_t position = 0; position < group.pipeline; ++position)
      capacity += std::ranges::min_element(positions[positions.size() == 1 ? 0 : static_cast<size_t>(position)], {},
                                           &KindCosts::capacity)
                      ->capacity;
    const auto ranks = static_cast<double>(group.pipeline);
    return fits(bytes / static_cast<double>(group.split.tensor) / ranks, capacity / ranks);
  }

  bool fits(double bytes, double capacity) {
    if (bytes > capacity && (outcome.leastBytes == 0 || bytes - capacity < outcome.leastBytes - outcome.capacity))
      outcome.leastBytes = bytes, outcome.capacity = capacity;
    return bytes <= capacity;
  }

  /// The costs of a group's layers at its positions, as measured with many rows, in proportion to the group's: no more
  /// than those with the group's rows.
  std::optional<Positions> scaledRows(const PlanGroup &group, Recomputation recompute) {
    const SplitChoice split = splitOfTensorAxis(group, recompute);
    auto positions = measureParts(group, split);
    const double share = static_cast<double>(group.split.rowsOfRank()) / static_cast<double>(split.rowsOfRank());
    for (size_t p = 0; positions && p < positions->size(); ++p)
      (*positions)[p] =
          withZero(withRows(std::move((*positions)[p]), share, slack), group.split.zero, group.split.data);
    return positions;
  }

  void boundOfTensorAxis(const Entry &entry) {
    const PlanGroup &group = groups[entry.group];
    const auto positions = scaledRows(group, group.split.recompute);
    if (!positions) // the group's own split may be possible: marks name axes and sizes
      return push(entry.group, Level::TensorAxis, entry.bound);
    if (!mayFit(group, *positions, [&](Recomputation more) { return scaledRows(group, more); }))
      return drop(entry.group, outcome.counts.prunedByMemory);
    push(entry.group, Level::TensorAxis, std::max(entry.bound, lowestOfAnyZero(entry, *positions)));
  }

  /// A lower bound of all rows of a group from costs that are measured without ZeRO: its stages share the bounds of
  /// their passes.
  double lowestOfAnyZero(const Entry &entry, const Positions &positions) {
    PlanGroup group = groups[entry.group];
    group.split.zero = 0;
    const auto [found, fresh] = lowestWithout.try_emplace({key(group), entry.level, schedules[entry.group].size()});
    const PositionCosts pointers = pointersTo(positions);
    if (fresh || excludesSome)
      found->second = lowestPasses(entry.group, pointers);
    return std::max(found->second,
                    secondsWithSums(groups[entry.group], pointers, exchanges(groups[entry.group], pointers)));
  }

  /// A lower bound of all rows of a group.
  double lowestOfAny(size_t group, const PositionCosts &positions) const {
    return std::max(lowestPasses(group, positions), secondsWithSums(groups[group], positions));
  }

  /// The same of one row.
  double lowestOf(const PlanGroup &group, const ScheduleChoice &schedule, const PositionCosts &positions) const {
    return std::max(lowestPasses(group, schedule, positions), secondsWithSums(group, positions));
  }

  /// A lower bound of all rows without the sums of gradients.
  double lowestPasses(size_t group, const PositionCosts &positions) const {
    double bound = INFINITY;
    std::set<std::tuple<int64_t, Placement, BackwardPass>> shapes;
    for (const ScheduleChoice &schedule : schedules[group])
      if (const Schedule shape = schedule.shapeOf(groups[group]);
          shapes.emplace(shape.chunks, shape.placement, shape.backward).second)
        bound = std::min(bound, lowestPasses(groups[group], schedule, positions));
    return bound;
  }

  /// A lower bound of a row by its layers' costs and by the messages between its nodes. It does not depend on ZeRO.
  double lowestPasses(const PlanGroup &group, const ScheduleChoice &schedule, const PositionCosts &positions) const {
    double lower = std::max(estimatorOf(input, group, positions).lowest(schedule), secondsOfMessages(group, schedule));
    if (positions.size() > 1)
      lower = std::max(lower, static_cast<double>(group.microbatches) * leastShare(group, positions, passes));
    return lower;
  }

  static double passes(const LayerCost &layer) { return layer.forward + layer.backward; }
  static double works(const LayerCost &layer) { return layer.forwardWork + layer.backwardWork; }

  /// Seconds in which the busiest link between nodes carries what ranks send over it, at the least.
  double secondsOfMessages(const PlanGroup &group, const ScheduleChoice &schedule) const {
    const SharedLinks &shared = input.places->sharedLinks(group);
    if (shared.flows.empty())
      return 0;
    const double bytes = leastSent * static_cast<double>(group.split.rowsOfRank());
    const Schedule shape = schedule.shapeOf(group);
    std::vector<double> busy(shared.count);
    const auto send = [&](int64_t from, int64_t to) {
      if (const auto found = shared.flowOf.find({from, to}); found != shared.flowOf.end())
        for (const Flow::Use &use : shared.flows[found->second].uses)
          busy[use.link] += use.share * input.places->sendSeconds(group, from, to, bytes);
    };
    for (int64_t stage = 0; stage + 1 < shape.stages(); ++stage) {
      send(shape.rankOf(stage), shape.rankOf(stage + 1));
      send(shape.rankOf(stage + 1), shape.rankOf(stage));
    }
    return std::ranges::max(busy) * static_cast<double>(group.microbatches);
  }

  /// Seconds of a rank with the average share of the layers, of whose sums of gradients at most the last backward pass
  /// hides a part. From stage 2 of ZeRO on, gradients are summed in every microbatch, from stage 3 on parameters are
  /// gathered in every pass: one after the other. `others`: seconds of the other collectives of a microbatch.
  double secondsWithSums(const PlanGroup &group, const PositionCosts &positions, double others = 0) const {
    if (group.split.data == 1 || positions.size() > 1)
      return 0;
    const PlanCosts &use = positions.front()->front().costs;
    const auto shares = static_cast<double>(group.pipeline), count = static_cast<double>(group.microbatches),
               data = static_cast<double>(group.split.data);
    const int64_t zero = group.split.zero;
    const double gradients = sumOf(use, [](const LayerCost &layer) { return layer.gradients; }) / shares;
    const double sums = input.places->sumSeconds(group, gradients * input.sumShare * (zero >= 2 ? data : 1), zero > 0);
    if (zero < 2) {
      const double backward = sumOf(use, [](const LayerCost &layer) { return layer.backward; }) / shares;
      return count * sumOf(use, passes) / shares + std::max(0.0, sums - backward);
    }
    double collectives = sums + others;
    if (zero >= 3) {
      const double parameters = sumOf(use, [](const LayerCost &layer) { return layer.parameters; }) / shares;
      collectives += 2 * input.places->sumSeconds(group, parameters * input.gatherShare * data, true);
    }
    return slack * count * collectives; // vectors are not split
  }

  /// Seconds of the collectives of axis tp in a microbatch, at the least, from costs that have no others.
  double exchanges(const PlanGroup &group, const PositionCosts &positions) const {
    const PlanCosts &use = positions.front()->front().costs;
    return (sumOf(use, passes) - sumOf(use, works)) / static_cast<double>(group.pipeline);
  }

  /// The costs of a group's layers at its positions, as measured with its rows for one group along axis tp.
  std::optional<Positions> measureRows(const PlanGroup &group, Recomputation recompute) {
    auto positions = measureParts(group, splitOfRows(group, recompute));
    for (size_t p = 0; positions && p < positions->size(); ++p)
      (*positions)[p] = withZero(std::move((*positions)[p]), group.split.zero, group.split.data);
    return positions;
  }

  /// Whether a plan of the group may fit, if its ranks recompute as much as they can.
  bool mayFit(const PlanGroup &group, const Positions &positions, auto measure) {
    const auto average = [&](const Positions &some) {
      auto [bytes, capacity] = estimatorOf(input, group, pointersTo(some)).leastBytes();
      return std::pair(bytes / static_cast<double>(group.pipeline), capacity / static_cast<double>(group.pipeline));
    };
    auto [bytes, capacity] = average(positions);
    if (bytes > capacity && recomputesMore(input, group))
      if (const auto full = measure(Recomputation::Full))
        std::tie(bytes, capacity) = average(*full);
    return fits(bytes, capacity);
  }

  void boundOfRows(const Entry &entry) {
    const PlanGroup &group = groups[entry.group];
    const bool possible = input.costs->takesRows(group.split.rowsOfRank());
    const auto positions = possible ? measureRows(group, group.split.recompute) : std::nullopt;
    if (!positions)
      return push(entry.group, Level::Rows, entry.bound);
    if (!mayFit(group, *positions, [&](Recomputation more) { return measureRows(group, more); }))
      return drop(entry.group, outcome.counts.prunedByMemory);
    push(entry.group, Level::Rows, std::max(entry.bound, slack * lowestOfAnyZero(entry, *positions)));
  }

  /// Splitting gradients and parameters among the ranks of axis dp never takes less time, so it is tried only where
  /// some schedule does not fit without it.
  bool fitsWithLess(const PlanGroup &group) const {
    PlanGroup less = group;
    --less.split.zero;
    const auto found = fitting.find(key(less));
    return group.split.zero >= 2 && found != fitting.end();
  }

  /// More recomputation never takes less time, so it is tried only where some schedule does not fit without it.
  bool fitsWithLessRecomputation(const PlanGroup &group) {
    PlanGroup less = group;
    for (const Recomputation kind : {Recomputation::None, Recomputation::Selective}) {
      less.split.recompute = kind;
      if (kind >= group.split.recompute || !numbers.contains(key(less)))
        continue;
      auto [found, fresh] = fitsAlways.try_emplace(key(less));
      if (const auto measured = rowsOfMeasured.find(keyOfAnyRows(less));
          !found->second && measured != rowsOfMeasured.end() && measured->second.contains(less.split.rows)) {
        const Estimator estimator = estimatorOf(input, less, *measurePositions(input, less, recomputeOf(less)));
        found->second = std::ranges::all_of(schedules[numbers.at(key(less))], [&](const ScheduleChoice &schedule) {
          const std::vector<size_t> begins = estimator.cut(schedule);
          return begins.empty() || estimator.memoryOf(schedule, begins, memoryMargin).fits();
        });
      }
      if (found->second.value_or(false))
        return true;
    }
    return false;
  }

  /// What bounds a group before it is measured: a microbatch takes no less time with a higher stage of ZeRO, more rows
  /// or more recomputation. A lower stage of ZeRO is also estimated before, see fitsWithLess.
  double boundOfOthers(size_t number) const {
    PlanGroup other = groups[number];
    double bound = 0;
    if (other.split.zero >= 2) {
      --other.split.zero;
      if (const auto less = numbers.find(key(other)); less != numbers.end())
        bound = bounds[less->second];
      ++other.split.zero;
    }
    if (other.order != usualOrder)
      bound = std::max(bound, boundOfDefaultOrder(number));
    const int64_t rows = other.split.rows;
    for (const Recomputation kind : {Recomputation::None, Recomputation::Selective, Recomputation::Full}) {
      if (kind > groups[number].split.recompute)
        break;
      other.split.recompute = kind;
      const auto measured = rowsOfMeasured.find(keyOfAnyRows(other));
      if (measured == rowsOfMeasured.end())
        continue;
      if (const auto more = measured->second.upper_bound(rows); more != measured->second.begin()) {
        other.split.rows = *std::prev(more), other.microbatches = groups[number].microbatches * rows / other.split.rows;
        bound = std::max(bound, slack * lowestOfAny(number, *measurePositions(input, other, recomputeOf(other))));
      }
    }
    return bound;
  }

  /// On devices of one kind another order than the default, in which groups of axis dp lie closest together, saves time
  /// of messages alone.
  double boundOfDefaultOrder(size_t number) const {
    PlanGroup usual = groups[number];
    usual.order = usualOrder;
    const auto measured = rowsOfMeasured.find(keyOfAnyRows(usual));
    if (measured == rowsOfMeasured.end() || !measured->second.contains(usual.split.rows))
      return 0;
    const auto positions = measurePositions(input, usual, recomputeOf(usual));
    if (positions->size() > 1 || input.places->positions(usual).size() > 1)
      return 0;
    const Estimator estimator(input.layers, usual, *positions, {[](int64_t, int64_t, double) { return 0.0; }});
    double bound = INFINITY;
    for (const ScheduleChoice &schedule : schedules[number])
      bound = std::min(bound, estimator.lowest(schedule));
    return bound;
  }

  void boundOfMesh(const Entry &entry) {
    const PlanGroup &group = groups[entry.group];
    if (fitsWithLess(group)) {
      fitting.insert(key(group));
      return drop(entry.group, outcome.counts.prunedByBound);
    }
    if (fitsWithLessRecomputation(group))
      return drop(entry.group, outcome.counts.prunedByBound);
    if (const double bound = boundOfOthers(entry.group); bound > entry.bound)
      return push(entry.group, Level::Rows, bound);
    const auto positions = measurePositions(input, group, recomputeOf(group));
    if (!positions)
      return drop(entry.group, outcome.counts.refused);
    rowsOfMeasured[keyOfAnyRows(group)].insert(group.split.rows);
    push(entry.group, Level::Mesh, std::max(entry.bound, lowestOfAny(entry.group, *positions)));
  }

  using Key = std::tuple<SplitChoice, AxisSizes, AxisOrder>;
  static Key key(const PlanGroup &group) { return {group.split, group.sizes, group.order}; }
  static Key keyOfAnyRows(PlanGroup group) {
    group.split.rows = 0;
    return key(group);
  }

  /// About the least time of a row if so many layers of ranks that lack memory recompute as `recompute` says that the
  /// rank fits which lacks most, from times with many rows.
  double boundOfMore(const PlanGroup &group, const ScheduleChoice &schedule, const PositionCosts &positions,
                     const Estimate &now, const std::vector<Recomputation> &recompute) {
    std::map<Recomputation, Positions> scaled;
    PositionCosts more;
    for (size_t p = 0; p < recompute.size(); ++p) {
      auto [found, fresh] = scaled.try_emplace(recompute[p]);
      if (fresh)
        if (auto measured = scaledRows(group, recompute[p]))
          found->second = std::move(*measured);
      if (found->second.empty())
        return 0;
      more.push_back(&found->second[found->second.size() == 1 ? 0 : p]);
    }
    const Estimator estimator = estimatorOf(input, group, more);
    const double bytes = estimator.memoryOf(schedule, estimator.cut(schedule)).bytes;
    const double share = bytes < now.bytes ? std::min(1.0, (now.bytes - now.capacity) / (now.bytes - bytes)) : 1;
    return std::lerp(lowestOf(group, schedule, positions), lowestOf(group, schedule, more), share);
  }

  void estimate(const Entry &entry) {
    const PlanGroup &group = groups[entry.group];
    const PositionCosts positions = *measurePositions(input, group, recomputeOf(group));
    bool allFit = true;
    for (const ScheduleChoice &schedule : schedules[entry.group]) {
      const double lower = lowestOf(group, schedule, positions);
      if (lower >= best) {
        ++outcome.counts.prunedByBound;
        outcome.lowest = std::min(outcome.lowest, lower);
        continue;
      }
      FastestPlan found = fastestOf(
          input, group, schedule, best,
          [&](const PositionCosts &lighter, const Estimate &now, const std::vector<Recomputation> &recompute) {
            return boundOfMore(group, schedule, lighter, now, recompute);
          });
      allFit &= found.allFit;
      if (found.closest.bytes > 0)
        fits(found.closest.bytes, found.closest.capacity);
      if (!found.plan) {
        ++outcome.counts.prunedByMemory;
        continue;
      }
      ++outcome.counts.evaluated;
      best = std::min(best, found.plan->estimate.seconds);
      outcome.candidates.push_back(std::move(*found.plan));
    }
    if (allFit)
      fitting.insert(key(group));
  }

  const SearchInput &input;
  const std::vector<PlanGroup> groups;
  std::vector<std::vector<ScheduleChoice>> schedules; ///< by group
  std::map<std::string, double> times;                ///< how many layers of the model have the costs of a measured one
  std::map<Key, size_t> numbers;                      ///< of the groups
  std::vector<double> bounds;                         ///< by group, as far as it was looked at
  std::vector<std::optional<double>> workBounds;      ///< the first of them; nothing: the model cannot be split so
  std::map<Key, std::set<int64_t>> rowsOfMeasured;    ///< of the groups that differ only in their rows
  std::map<std::tuple<Key, Level, size_t>, double> lowestWithout; ///< by level and number of schedules
  bool excludesSome = false;
  std::map<size_t, bool> lacking; ///< by group
  std::priority_queue<Entry> queue;
  std::set<Key> fitting;
  std::map<Key, std::optional<bool>> fitsAlways; ///< whether all schedules of a group fit; nothing: not measured yet
  std::set<SplitCosts::Wanted> asked;
  std::set<SplitChoice> askedTrials;
  SearchOutcome outcome;
  int64_t manyRows = 1;        ///< of a rank, the most in any group
  double leastSent = INFINITY; ///< bytes of one sample, at the smallest boundary of two layers
  double best = INFINITY;
};

} // namespace

SearchOutcome searchPlans(const SearchInput &input) { return PlanSearch(input).run(); }

} // namespace cleave::partitioner
