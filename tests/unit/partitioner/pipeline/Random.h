// Random costs of stages, and an independent check of a timeline.
#pragma once
#include "partitioner/pipeline/Simulate.h"
#include "partitioner/schedule/Named.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <random>
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

/// Checks times, waits, messages and memory of a timeline against their definitions, without the simulator's code.
inline void verify(const Schedule &schedule, const std::vector<StageCosts> &stages, const Timeline &timeline) {
  std::map<std::tuple<Work, int64_t, int64_t>, Span> times;
  std::map<std::tuple<Work, int64_t, int64_t>, double> arrivals;
  for (size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    double busy = 0;
    for (size_t i = 0; i < schedule.order[rank].size(); ++i) {
      const ScheduledWork &work = schedule.order[rank][i];
      const Span &time = timeline.ranks[rank].works[i];
      REQUIRE(time.end == Approx(time.begin + stages[size_t(work.stage)].of(work.work)));
      REQUIRE(time.begin >= (i ? timeline.ranks[rank].works[i - 1].end : 0));
      busy += stages[size_t(work.stage)].of(work.work);
      times[{work.work, work.stage, work.microbatch}] = time;
    }
    REQUIRE(timeline.ranks[rank].busy == Approx(busy));
  }
  REQUIRE(int64_t(times.size()) == 3 * schedule.stages() * schedule.microbatches);
  for (const RankTimeline &rank : timeline.ranks)
    for (const Message &message : rank.messages) {
      const auto key = std::tuple(message.result.work, message.result.stage, message.result.microbatch);
      REQUIRE(message.time.begin >= times.at(key).end);
      REQUIRE(message.time.end == Approx(message.time.begin + stages[size_t(message.result.stage)].send));
      REQUIRE(arrivals.emplace(key, message.time.end).second);
    }
  const auto arrived = [&](Work work, int64_t from, int64_t to, int64_t m) {
    if (schedule.rankOf(from) == schedule.rankOf(to))
      return times.at({work, from, m}).end;
    REQUIRE(arrivals.count({work, from, m}) == 1);
    return arrivals.at({work, from, m});
  };
  for (const auto &[key, time] : times) {
    const auto [work, stage, m] = key;
    if (work == Work::Forward && stage > 0)
      REQUIRE(time.begin >= arrived(work, stage - 1, stage, m));
    if (work == Work::InputGradient)
      REQUIRE(time.begin >= times.at({Work::Forward, stage, m}).end);
    if (work == Work::InputGradient && stage + 1 < schedule.stages())
      REQUIRE(time.begin >= arrived(work, stage + 1, stage, m));
    if (work == Work::WeightGradient)
      REQUIRE(time.begin >= times.at({Work::InputGradient, stage, m}).end);
  }
  // Memory at the beginning of every work, by the times.
  for (int64_t rank = 0; rank < schedule.ranks; ++rank) {
    double peak = 0;
    for (const Span &at : timeline.ranks[size_t(rank)].works) {
      double held = 0;
      for (int64_t chunk = 0; chunk < schedule.chunks; ++chunk)
        for (int64_t m = 0; m < schedule.microbatches; ++m) {
          const int64_t stage = schedule.stageOf(rank, chunk);
          if (times.at({Work::WeightGradient, stage, m}).end <= at.begin)
            continue;
          if (times.at({Work::Forward, stage, m}).begin <= at.begin)
            held += stages[size_t(stage)].activationBytes;
          if (times.at({Work::InputGradient, stage, m}).begin <= at.begin)
            held += stages[size_t(stage)].gradientBytes;
        }
      peak = std::max(peak, held);
    }
    REQUIRE(timeline.ranks[size_t(rank)].peakBytes == Approx(peak));
  }
}

} // namespace cleave::partitioner
