// The search: named schedules and greedy ones compete, and the best is improved.
#include "partitioner/pipeline/Search.h"

#include "partitioner/pipeline/Greedy.h"
#include "partitioner/pipeline/Improve.h"
#include "partitioner/schedule/Named.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace cleave::partitioner {
namespace {

// Bounds of the effort, as numbers of works to schedule or simulate. One takes about 0.1 microseconds.
constexpr size_t pilotWorks = 5'000, policyWorks = 5'000'000, finalWorks = 3'000'000, improveWorks = 20'000'000,
                 mostTrials = 30'000;

struct Candidate {
  Schedule schedule;
  double step = 0, peak = 0;
};

/// Whether `a` is shorter, or equally short except for rounding and its peak is lower.
bool better(const Candidate &a, const Candidate &b) {
  if (std::abs(a.step - b.step) > 1e-12 * b.step)
    return a.step < b.step;
  return a.peak < b.peak;
}

/// The same schedule with a split backward pass. It is never slower, because input gradients are sent earlier.
Schedule splitBackward(const Schedule &schedule) {
  Schedule split = schedule;
  split.name = searchedSchedule;
  split.backward = BackwardPass::Split;
  for (auto &order : split.order) {
    std::vector<ScheduledWork> works;
    for (const ScheduledWork &work : order) {
      works.push_back(work);
      if (work.work == Work::Backward) {
        works.back().work = Work::InputGradient;
        works.push_back({Work::WeightGradient, work.stage, work.microbatch});
      }
    }
    order = std::move(works);
  }
  return split;
}

/// A policy and its memory: `microbatches` whole microbatches and a gradient, if the limit allows that much.
struct Rule {
  Policy policy;
  double microbatches;
};

std::vector<Rule> rulesFor(const Schedule &shape) {
  const double none = std::numeric_limits<double>::infinity(), ranks = double(shape.ranks);
  std::vector<Rule> rules;
  for (double patience : {0.0, 0.5, 1.0})
    for (double ahead : {none, 1.0, 2.0, 1.5, 3.0, 0.3, 0.4, 0.5, 0.625, 0.75, 0.875})
      for (double microbatches : {none, ranks, 2 * ranks - 1, 1.5 * ranks})
        for (Policy::First first : {Policy::First::Backward, Policy::First::Alternate, Policy::First::Forward})
          for (bool early : {false, true})
            if (!early || shape.chunks > 1)
              rules.push_back({{first, false, patience, ahead, early}, microbatches});
  for (double pace : {1.0, 0.97, 1.03, 1.1})
    for (double patience : {0.0, 0.5, 1.0})
      for (Policy::First first : {Policy::First::Backward, Policy::First::Alternate, Policy::First::Forward})
        for (bool early : {false, true})
          if (!early || shape.chunks > 1)
            rules.push_back({{first, false, patience, none, early, pace}, none});
  for (double ahead : {1.0, 1.5, 2.0, 3.0, none})
    for (bool early : {false, true})
      if (!early || shape.chunks > 1)
        rules.push_back({{Policy::First::Backward, true, 0, ahead, early}, none});
  return rules;
}

/// The search for one set of costs and limits.
class Search {
public:
  Search(const Schedule &shape, const std::vector<StageCosts> &stages, const std::vector<double> &limits)
      : shape(shape), stages(stages), limits(limits), works(size_t(3 * shape.stages() * shape.microbatches)),
        lowest(lowestStep(shape, stages)) {
    this->shape.name = searchedSchedule;
    this->shape.order.clear();
  }

  std::optional<Schedule> run() {
    for (const Schedule &schedule : namedSchedulesOf(shape)) {
      offer(schedule);
      if (schedule.backward == BackwardPass::Joined)
        offer(splitBackward(schedule));
    }
    if (!done())
      tryRules();
    if (!best)
      offer(oneAtATime(shape));
    if (best && !done())
      offer(
          improved(splitBackward(best->schedule), stages, limits, lowest, std::min(improveWorks / works, mostTrials)));
    if (!best)
      return std::nullopt;
    if (best->schedule.name == searchedSchedule)
      return ascending(std::move(best->schedule));
    return std::move(best->schedule);
  }

private:
  /// Whether no schedule can be shorter than the best.
  bool done() const { return best && best->step <= lowest * (1 + 1e-12); }

  std::optional<Candidate> measured(Schedule schedule) const {
    const std::vector<double> peaks = peakBytes(schedule, stages);
    if (rankOverLimit(peaks, limits))
      return std::nullopt;
    const auto times = timesOf(schedule, stages);
    if (!times)
      return std::nullopt;
    Candidate candidate{std::move(schedule), 0, *std::max_element(peaks.begin(), peaks.end())};
    for (const auto &rank : *times)
      candidate.step = std::max(candidate.step, rank.back().end);
    return candidate;
  }

  void offer(Schedule schedule) {
    auto candidate = measured(std::move(schedule));
    if (candidate && (!best || better(*candidate, *best)))
      best = std::move(candidate);
  }

  std::vector<double> limitsOf(const Rule &rule) const {
    std::vector<double> lower = limits;
    for (int64_t rank = 0; rank < shape.ranks; ++rank) {
      double activations = 0, gradient = 0;
      for (int64_t chunk = 0; chunk < shape.chunks; ++chunk) {
        const StageCosts &costs = stages[size_t(shape.stageOf(rank, chunk))];
        activations += costs.activationBytes;
        gradient = std::max(gradient, costs.gradientBytes);
      }
      if (std::isfinite(rule.microbatches))
        lower[size_t(rank)] = std::min(lower[size_t(rank)], rule.microbatches * activations + gradient);
    }
    return lower;
  }

  std::optional<Schedule> greedy(const Rule &rule, int64_t microbatches) const {
    Schedule sizes = shape;
    sizes.microbatches = microbatches;
    return greedySchedule(sizes, stages, limitsOf(rule), rule.policy);
  }

  /// Tries all rules, or an evenly spaced part of them, on enough microbatches to show the repeating pattern; then the
  /// best ones on all microbatches.
  void tryRules() {
    const std::vector<Rule> rules = rulesFor(shape);
    const int64_t perMicrobatch = 3 * shape.stages();
    const int64_t pilot = std::clamp<int64_t>(int64_t(pilotWorks) / perMicrobatch, 2 * shape.ranks,
                                              std::max(2 * shape.ranks, shape.microbatches));
    const int64_t microbatches = std::min(pilot, shape.microbatches);
    const size_t tried = std::clamp<size_t>(policyWorks / size_t(perMicrobatch * microbatches), 1, rules.size());
    std::vector<std::pair<Candidate, size_t>> ranking; // without their orders
    for (size_t i = 0; i < tried && !done(); ++i) {
      const size_t rule = i * rules.size() / tried;
      auto schedule = greedy(rules[rule], microbatches);
      if (schedule && microbatches == shape.microbatches) {
        offer(std::move(*schedule));
      } else if (schedule) {
        if (auto candidate = measured(std::move(*schedule)))
          ranking.emplace_back(Candidate{{}, candidate->step, candidate->peak}, rule);
      }
    }
    std::sort(ranking.begin(), ranking.end(), [](const auto &a, const auto &b) {
      return std::tie(a.first.step, a.first.peak, a.second) < std::tie(b.first.step, b.first.peak, b.second);
    });
    const size_t finalists = std::clamp<size_t>(finalWorks / works, 1, 8);
    for (size_t i = 0; i < std::min(finalists, ranking.size()) && !done(); ++i)
      if (auto schedule = greedy(rules[ranking[i].second], shape.microbatches))
        offer(std::move(*schedule));
  }

  Schedule shape;
  const std::vector<StageCosts> &stages;
  const std::vector<double> &limits;
  size_t works;
  double lowest;
  std::optional<Candidate> best;
};

} // namespace

Schedule oneAtATime(const Schedule &shape) {
  Schedule schedule = shape;
  schedule.name = searchedSchedule;
  schedule.backward = BackwardPass::Split;
  schedule.order.assign(size_t(shape.ranks), {});
  for (int64_t m = 0; m < shape.microbatches; ++m) {
    for (int64_t stage = 0; stage < shape.stages(); ++stage)
      schedule.order[size_t(shape.rankOf(stage))].push_back({Work::Forward, stage, m});
    for (int64_t stage = shape.stages(); stage-- > 0;)
      for (Work work : {Work::InputGradient, Work::WeightGradient})
        schedule.order[size_t(shape.rankOf(stage))].push_back({work, stage, m});
  }
  return schedule;
}

std::optional<Schedule> searchSchedule(const Schedule &shape, const std::vector<StageCosts> &stages,
                                       const std::vector<double> &limits) {
  return Search(shape, stages, limits).run();
}

std::vector<Schedule> openShapes(int64_t ranks, int64_t microbatches) {
  return {{searchedSchedule, ranks, 1, microbatches, Placement::Wrapped},
          {searchedSchedule, ranks, 2, microbatches, Placement::Wrapped},
          {searchedSchedule, ranks, 2, microbatches, Placement::V}};
}

std::optional<size_t> rankOverLimit(const std::vector<double> &peaks, const std::vector<double> &limits) {
  for (size_t rank = 0; rank < peaks.size(); ++rank)
    if (peaks[rank] > limits[rank] * (1 + 1e-9))
      return rank;
  return std::nullopt;
}

std::vector<double> leastBytes(const Schedule &shape, const std::vector<StageCosts> &stages) {
  Schedule one = shape;
  one.microbatches = 1;
  return peakBytes(oneAtATime(one), stages);
}

} // namespace cleave::partitioner
