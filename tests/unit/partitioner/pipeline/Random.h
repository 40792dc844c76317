// Random costs of stages, and an independent check of a timeline.
#pragma once
#include "partitioner/pipeline/Simulate.h"
#include "partitioner/schedule/Named.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <tuple>

namespace cleave::partitioner {

inline std::vector<StageCosts> randomCosts(int64_t stages, std::mt19937_64 &random) {
  const auto value = [&](double most) { return 0.05 + std::uniform_real_distribution<double>(0, most)(random); };
  const double send = random() % 2 ? value(1.5) : 0, uneven = random() % 3 ? 2 : 0;
  const StageCosts same{value(2), value(2), value(2), send, 1, random() % 2 ? 0.25 : 0};
  std::vector<StageCosts> costs;
  for (int64_t stage = 0; stage < stages; ++stage) {
    costs.push_back(same);
    if (uneven > 0)
      costs.back() = {value(uneven), value(uneven), value(uneven), send, double(1 + random() % 3), same.gradientBytes};
  }
  return costs;
}

/// Checks a timeline by the definitions of times, waits, messages and memory, without the simulator's code. `run`
/// returns the first defect, "" if there is none.
class Verifier {
public:
  Verifier(const Schedule &schedule, const std::vector<StageCosts> &stages, const PipelineTimeline &timeline)
      : schedule(schedule), stages(stages), timeline(timeline) {}

  std::string run() {
    readWorks();
    readMessages();
    for (const auto &[key, time] : times)
      checkWaits(key, time);
    for (int64_t rank = 0; rank < schedule.ranks; ++rank)
      require(same(timeline.ranks[size_t(rank)].peakBytes, peakOf(rank)), "peak of rank " + std::to_string(rank));
    return defect;
  }

private:
  using Key = std::tuple<Work, int64_t, int64_t>;

  bool split() const { return schedule.backward == BackwardPass::Split; }
  void require(bool ok, const std::string &what) {
    if (!ok && defect.empty())
      defect = what;
  }
  void require(bool ok, const ScheduledWork &work) {
    if (!ok)
      require(false, longName(work));
  }
  static bool same(double a, double b) { return std::abs(a - b) <= 1e-9 * (1 + std::abs(b)); }

  void readWorks() {
    for (size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
      double busy = 0, before = 0;
      for (size_t i = 0; i < schedule.order[rank].size(); ++i) {
        const ScheduledWork &work = schedule.order[rank][i];
        const Span &time = timeline.ranks[rank].works[i];
        require(same(time.end - time.begin, stages[size_t(work.stage)].of(work.work)), work);
        rankFree[{work.work, work.stage, work.microbatch}] = before;
        before = time.end;
        busy += stages[size_t(work.stage)].of(work.work);
        times[{work.work, work.stage, work.microbatch}] = time;
      }
      require(same(timeline.ranks[rank].busy, busy), "work of rank " + std::to_string(rank));
    }
    require(int64_t(times.size()) == (split() ? 3 : 2) * schedule.stages() * schedule.microbatches, "number of works");
  }

  void readMessages() {
    for (const RankTimeline &rank : timeline.ranks) {
      std::map<int64_t, double> free; // by receiver: when the link to that rank becomes free
      for (const auto &[work, receiver, time] : rank.messages) {
        const Key key{work.work, work.stage, work.microbatch};
        require(same(time.begin, std::max(times.at(key).end, free[receiver])) &&
                    same(time.end - time.begin, stages[size_t(work.stage)].send) &&
                    arrivals.emplace(key, time.end).second,
                work);
        free[receiver] = time.end;
      }
    }
  }

  /// The time at which the result of the work `key` is on the rank of stage `to`.
  double arrived(const Key &key, int64_t to) {
    if (schedule.rankOf(std::get<1>(key)) == schedule.rankOf(to))
      return times.at(key).end;
    require(arrivals.count(key) == 1, "a message");
    return arrivals.count(key) ? arrivals.at(key) : 0;
  }

  /// A work begins as soon as its rank is free and its operands have arrived.
  void checkWaits(const Key &key, const Span &time) {
    const auto [work, stage, m] = key;
    double ready = rankFree.at(key);
    if (work == Work::Forward && stage > 0)
      ready = std::max(ready, arrived({work, stage - 1, m}, stage));
    if (work == Work::InputGradient || work == Work::Backward)
      ready = std::max(ready, times.at({Work::Forward, stage, m}).end);
    if ((work == Work::InputGradient || work == Work::Backward) && stage + 1 < schedule.stages())
      ready = std::max(ready, arrived({work, stage + 1, m}, stage));
    if (work == Work::WeightGradient)
      ready = std::max(ready, times.at({Work::InputGradient, stage, m}).end);
    require(same(time.begin, ready), ScheduledWork{work, stage, m});
  }

  /// The largest memory that a rank holds when a work begins, computed from the times. Every work must take some time.
  double peakOf(int64_t rank) {
    std::vector<std::pair<double, double>> changes;
    for (int64_t chunk = 0; chunk < schedule.chunks; ++chunk)
      for (int64_t m = 0; m < schedule.microbatches; ++m) {
        const int64_t stage = schedule.stageOf(rank, chunk);
        const StageCosts &costs = stages[size_t(stage)];
        changes.emplace_back(times.at({Work::Forward, stage, m}).begin, costs.activationBytes);
        changes.emplace_back(times.at({split() ? Work::InputGradient : Work::Backward, stage, m}).begin,
                             costs.gradientBytes);
        changes.emplace_back(times.at({split() ? Work::WeightGradient : Work::Backward, stage, m}).end,
                             -costs.activationBytes - costs.gradientBytes);
      }
    std::sort(changes.begin(), changes.end()); // at equal times, memory is freed first
    double held = 0, peak = 0;
    for (const auto &[time, bytes] : changes)
      peak = std::max(peak, held += bytes);
    return peak;
  }

  const Schedule &schedule;
  const std::vector<StageCosts> &stages;
  const PipelineTimeline &timeline;
  std::map<Key, Span> times;
  std::map<Key, double> arrivals, rankFree;
  std::string defect;
};

inline std::string verify(const Schedule &schedule, const std::vector<StageCosts> &stages,
                          const PipelineTimeline &timeline) {
  return Verifier(schedule, stages, timeline).run();
}

} // namespace cleave::partitioner
