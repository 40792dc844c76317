// List scheduling by events: a rank looks for work when it gets free and when something arrives.
#include "partitioner/pipeline/Greedy.h"

#include "partitioner/schedule/Walk.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <tuple>

namespace cleave::partitioner {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();

class Greedy {
public:
  Greedy(const Schedule &shape, const std::vector<StageCosts> &stages, const std::vector<double> &limits,
         const Policy &policy)
      : result(shape), stages(stages), limits(limits), policy(policy), state(stages.size()), ranks(size_t(shape.ranks)),
        forwardArrival(stages.size() * size_t(shape.microbatches), never), gradientArrival(forwardArrival) {
    result.order.assign(ranks.size(), {});
    result.backward = BackwardPass::Split;
    for (int64_t stage = 0; stage < shape.stages(); ++stage)
      prepare(stage);
    const double interval = policy.pace * busiestWork();
    for (int64_t m = 0; m < shape.microbatches; ++m)
      forwardArrival[size_t(m)] = double(m) * interval;
    std::fill_n(gradientArrival.end() - shape.microbatches, shape.microbatches, 0);
  }

  std::optional<Schedule> run() {
    for (size_t rank = 0; rank < ranks.size(); ++rank)
      events.push({0, rank});
    if (policy.pace > 0)
      for (int64_t m = 1; m < result.microbatches; ++m)
        events.push({forwardArrival[size_t(m)], 0});
    while (!events.empty()) {
      const auto [now, rank] = events.top();
      events.pop();
      if (ranks[rank].free > now)
        continue; // the rank looks again when it becomes free
      if (const auto work = choose(rank, now))
        begin(rank, *work, now);
    }
    for (const auto &order : result.order)
      if (int64_t(order.size()) != result.worksOfMicrobatch() * result.chunks * result.microbatches)
        return std::nullopt;
    return std::move(result);
  }

private:
  struct StageState {
    int64_t forwards = 0, gradients = 0, weights = 0; // numbers of works begun
    int64_t mostAhead = 1;
    double room = 0; // bytes that its rank must have free to begin a forward
    int64_t rank = 0;
  };
  struct RankState {
    double free = 0, held = 0;
    double link[2] = {0, 0}; // times when the links to the next and the previous rank become free
    bool forwardWasLast = false;
  };

  void prepare(int64_t stage) {
    StageState &s = state[size_t(stage)];
    s.rank = result.rankOf(stage);
    const double ahead = std::ceil(policy.ahead * double(result.stages() - stage));
    s.mostAhead = ahead < double(result.microbatches) ? std::max<int64_t>(1, int64_t(ahead)) : result.microbatches;
    double gradient = 0;
    for (int64_t chunk = 0; chunk < result.chunks; ++chunk) {
      const int64_t other = result.stageOf(s.rank, chunk);
      gradient = std::max(gradient, stages[size_t(other)].gradientBytes);
      if (other >= stage)
        s.room += stages[size_t(other)].activationBytes;
    }
    s.room += gradient;
  }

  /// The work of the busiest rank for a microbatch.
  double busiestWork() const {
    std::vector<double> work(ranks.size());
    for (size_t stage = 0; stage < stages.size(); ++stage)
      work[size_t(state[stage].rank)] += stages[stage].work();
    return *std::max_element(work.begin(), work.end());
  }

  size_t slot(int64_t stage, int64_t microbatch) const { return size_t(stage * result.microbatches + microbatch); }
  bool fits(size_t rank, double bytes) const { return ranks[rank].held + bytes <= limits[rank] * (1 + 1e-9); }

  /// Sets `found` to the first candidate that has arrived, and `soonest` to the earliest arrival of the others.
  void consider(std::optional<ScheduledWork> &found, double &soonest, const ScheduledWork &work, double arrival,
                double now) {
    if (arrival > now)
      soonest = std::min(soonest, arrival);
    else if (!found)
      found = work;
  }

  std::optional<ScheduledWork> choose(size_t rank, double now) {
    std::optional<ScheduledWork> forward, gradient, weight;
    double soonest = never;
    for (int64_t i = 0; i < result.chunks; ++i) {
      const int64_t stage = result.stageOf(int64_t(rank), policy.earlyStagesFirst ? i : result.chunks - 1 - i);
      const StageState &s = state[size_t(stage)];
      if (s.forwards < result.microbatches && s.forwards - s.gradients < s.mostAhead && fits(rank, s.room))
        consider(forward, soonest, {Work::Forward, stage, s.forwards}, forwardArrival[slot(stage, s.forwards)], now);
      if (s.gradients < s.forwards && fits(rank, stages[size_t(stage)].gradientBytes))
        consider(gradient, soonest, {Work::InputGradient, stage, s.gradients},
                 gradientArrival[slot(stage, s.gradients)], now);
      if (!weight && s.weights < s.gradients)
        weight = ScheduledWork{Work::WeightGradient, stage, s.weights};
    }
    if (weight && policy.weightsAtOnce)
      return weight;
    const bool forwardFirst = policy.first == Policy::First::Forward ||
                              (policy.first == Policy::First::Alternate && !ranks[rank].forwardWasLast);
    if (forward || gradient)
      return forward && (forwardFirst || !gradient) ? forward : gradient;
    if (weight && soonest < now + policy.patience * stages[size_t(weight->stage)].weightGradient)
      return std::nullopt; // the rank looks again when the more urgent work arrives
    return weight;
  }

  void begin(size_t rank, const ScheduledWork &work, double now) {
    RankState &r = ranks[rank];
    StageState &s = state[size_t(work.stage)];
    const StageCosts &costs = stages[size_t(work.stage)];
    result.order[rank].push_back(work);
    (work.work == Work::Forward ? s.forwards : work.work == Work::InputGradient ? s.gradients : s.weights) += 1;
    if (work.work != Work::WeightGradient)
      r.forwardWasLast = work.work == Work::Forward;
    r.held += bytesTaken(work.work, costs) - bytesFreed(work.work, costs);
    r.free = now + costs.of(work.work);
    events.push({r.free, rank});
    const int64_t reader = readerOf(work, result.stages());
    if (reader < 0)
      return;
    const size_t receiver = size_t(state[size_t(reader)].rank);
    double arrival = r.free;
    if (receiver != rank) {
      double &link = r.link[receiver != (rank + 1) % ranks.size()];
      arrival = link = std::max(arrival, link) + costs.message(work.work);
      events.push({arrival, receiver});
    }
    (work.work == Work::Forward ? forwardArrival : gradientArrival)[slot(reader, work.microbatch)] = arrival;
  }

  Schedule result;
  const std::vector<StageCosts> &stages;
  const std::vector<double> &limits;
  const Policy &policy;
  std::vector<StageState> state;
  std::vector<RankState> ranks;
  std::vector<double> forwardArrival, gradientArrival;
  using Event = std::pair<double, size_t>; // time, rank that looks for work
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
};

} // namespace

std::optional<Schedule> greedySchedule(const Schedule &shape, const std::vector<StageCosts> &stages,
                                       const std::vector<double> &limits, const Policy &policy) {
  return Greedy(shape, stages, limits, policy).run();
}

} // namespace cleave::partitioner
