// The published schedules, each under its timeline. A row is a rank, a column the time of one work; works of a rank's
// second stage are in lower case. B is a joined backward pass, which takes two columns ("=" is the second one); where
// there is W, B is an input gradient and W a weight gradient. P is the number of ranks, M that of microbatches.
#include "partitioner/schedule/Named.h"

#include "runtime/base/Error.h"
#include "runtime/base/Nearest.h"
#include "runtime/base/Schedules.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::partitioner {
namespace {

/// Collects the works of one rank in order.
class RankOrder {
public:
  RankOrder(const Schedule &schedule, int64_t rank) : schedule(schedule), rank(rank) {}

  void add(Work work, int64_t microbatch, int64_t chunk = 0) {
    if (microbatch < schedule.microbatches) // zb-v's pattern may go beyond the last microbatch
      works.push_back({work, schedule.stageOf(rank, chunk), microbatch});
  }
  /// Adds both parts of a split backward pass.
  void bothGradients(int64_t microbatch, int64_t chunk = 0) {
    add(Work::InputGradient, microbatch, chunk);
    add(Work::WeightGradient, microbatch, chunk);
  }

  std::vector<ScheduledWork> works;

private:
  const Schedule &schedule;
  int64_t rank;
};

// GPipe (Huang et al. 2019): all forwards, then all backwards from the last microbatch to the first. Holds M
// microbatches.
//
//   rank 0  F0 F1 F2 F3 .  .  .  .  .  .  B3 =  B2 =  B1 =  B0 =
//   rank 1  .  F0 F1 F2 F3 .  .  .  B3 =  B2 =  B1 =  B0 =  .  .
//   rank 2  .  .  F0 F1 F2 F3 B3 =  B2 =  B1 =  B0 =  .  .  .  .
void gpipe(RankOrder &order, const Schedule &schedule, int64_t) {
  for (int64_t m = 0; m < schedule.microbatches; ++m)
    order.add(Work::Forward, m);
  for (int64_t m = schedule.microbatches; m-- > 0;)
    order.add(Work::Backward, m);
}

// 1F1B (PipeDream-Flush, Narayanan et al. 2021): rank r has P - r microbatches in flight, and holds as many.
//
//   rank 0  F0 F1 F2 .  .  .  .  B0 =  F3 B1 =  F4 B2 =  .  B3 =  .  B4 =
//   rank 1  .  F0 F1 .  .  B0 =  F2 B1 =  F3 B2 =  F4 B3 =  .  B4 =  .  .
//   rank 2  .  .  F0 B0 =  F1 B1 =  F2 B2 =  F3 B3 =  F4 B4 =  .  .  .  .
void oneForwardOneBackward(RankOrder &order, const Schedule &schedule, int64_t rank) {
  const int64_t warmUp = std::min(schedule.ranks - rank, schedule.microbatches);
  for (int64_t m = 0; m < warmUp; ++m)
    order.add(Work::Forward, m);
  for (int64_t m = 0; m < schedule.microbatches; ++m) {
    order.add(Work::Backward, m);
    order.add(Work::Forward, warmUp + m);
  }
}

/// Adds `warmUp` forwards, then one input gradient, one weight gradient and one forward at a time. The weight gradient
/// is that of the microbatch `lag` earlier; the remaining weight gradients come last.
void oneByOne(RankOrder &order, int64_t microbatches, int64_t warmUp, int64_t lag) {
  warmUp = std::min(warmUp, microbatches);
  for (int64_t m = 0; m < warmUp; ++m)
    order.add(Work::Forward, m);
  for (int64_t m = 0; m < microbatches; ++m) {
    order.add(Work::InputGradient, m);
    if (m >= lag)
      order.add(Work::WeightGradient, m - lag);
    order.add(Work::Forward, warmUp + m);
  }
  for (int64_t m = std::max<int64_t>(0, microbatches - lag); m < microbatches; ++m)
    order.add(Work::WeightGradient, m);
}

// ZB-H1 (Qi et al., ICLR 2024): 1F1B whose rank r computes weight gradients r microbatches late. The last ranks compute
// them when they would otherwise wait at the end, and the first rank gets its gradients sooner. Every rank holds min(P,
// M) microbatches.
//
//   rank 0  F0 F1 F2 .  .  B0 W0 F3 B1 W1 F4 B2 W2 B3 W3 B4 W4
//   rank 1  .  F0 F1 .  B0 F2 B1 W0 F3 B2 W1 F4 B3 W2 B4 W3 W4
//   rank 2  .  .  F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 F4 B4 W2 W3 W4
void zeroBubbleH1(RankOrder &order, const Schedule &schedule, int64_t rank) {
  oneByOne(order, schedule.microbatches, schedule.ranks - rank, rank);
}

// ZB-H2 (Qi et al., ICLR 2024): enough forwards before the first gradient that no rank waits after its first work.
// Every rank holds min(2P - 1, M) microbatches.
//
//   rank 0  F0 F1 F2 F3 F4 B0 W0 F5 B1 W1 B2 W2 B3 W3 B4 W4 B5 W5 .  .
//   rank 1  .  F0 F1 F2 B0 F3 B1 F4 B2 W0 F5 B3 W1 B4 W2 B5 W3 W4 W5 .
//   rank 2  .  .  F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 W0 F5 B5 W1 W2 W3 W4 W5
void zeroBubbleH2(RankOrder &order, const Schedule &schedule, int64_t rank) {
  oneByOne(order, schedule.microbatches, 2 * (schedule.ranks - rank) - 1, 2 * rank);
}

// Interleaved 1F1B (Narayanan et al. 2021): a rank has V stages, each 1/V of its work, so that a pipeline fills in 1/V
// of the time. Microbatches go in groups of P: a group passes a rank's first stage, then its second one, and so on.
//
//   rank 0  F0 F1 f0 f1 F2 .  b0 =  F3 b1 =  f2 B0 =  f3 B1 =  .  b2 =  .  b3 =  B2 =  B3 =
//   rank 1  .  F0 F1 f0 b0 =  f1 b1 =  F2 B0 =  F3 B1 =  f2 b2 =  f3 b3 =  B2 =  B3 =  .  .
void interleaved(RankOrder &order, const Schedule &schedule, int64_t rank) {
  const int64_t ranks = schedule.ranks, chunks = schedule.chunks, all = schedule.microbatches * chunks;
  const auto microbatch = [&](int64_t k) { return k / (ranks * chunks) * ranks + k % ranks; };
  const auto chunk = [&](int64_t k) { return k / ranks % chunks; };
  const int64_t warmUp = std::min((ranks - rank - 1) * 2 + (chunks - 1) * ranks, all);
  for (int64_t k = 0; k < warmUp; ++k)
    order.add(Work::Forward, microbatch(k), chunk(k));
  for (int64_t k = 0; k < all; ++k) {
    if (warmUp + k < all)
      order.add(Work::Forward, microbatch(warmUp + k), chunk(warmUp + k));
    order.add(Work::Backward, microbatch(k), chunks - 1 - chunk(k));
  }
}

// ZB-V (Qi et al., ICLR 2024; its family in "Pipeline Parallelism with Controllable Memory", NeurIPS 2024): a rank has
// two stages, and the second half of the stages runs back, so that the first rank has the loss and begins its gradients
// at once. No rank waits once it has begun if M >= 2P - 1 and all works take the same time. Every rank holds at most 2P
// halves of a microbatch: as much as 1F1B.
//
//   rank 0  F0 F1 F2 f0 b0 w0 f1 b1 w1 F3 B0 W0 f2 b2 w2 B1 W1 f3 b3 w3 B2 W2 B3 W3 .
//   rank 1  .  F0 f0 F1 f1 b0 w0 F2 B0 W0 f2 b1 w1 F3 B1 W1 f3 b2 w2 B2 b3 B3 W2 w3 W3
void zeroBubbleV(RankOrder &order, const Schedule &schedule, int64_t rank) {
  const int64_t ranks = schedule.ranks, microbatches = std::max(schedule.microbatches, 2 * ranks - 1);
  int64_t forwards[2] = {0, 0}, backwards[2] = {0, 0}, weights[2];
  const auto forward = [&](int chunk) { order.add(Work::Forward, forwards[chunk]++, chunk); };
  const auto backward = [&](int chunk) { order.bothGradients(backwards[chunk]++, chunk); };
  for (int64_t i = 0; i < 2 * (ranks - rank) - 1; ++i)
    forward(0);
  for (int64_t i = 0; i < rank; ++i)
    forward(1), forward(0);
  for (int64_t i = 0; i < ranks - rank; ++i)
    forward(1), backward(1);
  while (forwards[1] < microbatches) {
    if (forwards[0] < microbatches)
      forward(0);
    backward(0), forward(1), backward(1);
  }
  // The rest: weight gradients wait where another rank needs an input gradient first.
  std::copy(backwards, backwards + 2, weights);
  for (int64_t i = 0; i < rank; ++i) {
    order.add(Work::InputGradient, backwards[0]++, 0);
    order.add(Work::InputGradient, backwards[1]++, 1);
  }
  for (int64_t i = 0; i < ranks - rank; ++i) {
    order.add(Work::InputGradient, backwards[0]++, 0);
    order.add(Work::WeightGradient, weights[0]++, 0);
  }
  for (int chunk : {1, 0})
    while (weights[chunk] < microbatches)
      order.add(Work::WeightGradient, weights[chunk]++, chunk);
}

struct Named {
  const char *name; // the order of its microbatches follows from it (runtime/base/Schedules.h)
  int64_t chunks;   // 0: any number from 2, and microbatches go in groups of as many as there are ranks
  Placement placement;
  BackwardPass backward;
  void (*generate)(RankOrder &order, const Schedule &schedule, int64_t rank);
};

const Named all[] = {{descendingSchedule, 1, Placement::Wrapped, BackwardPass::Joined, gpipe},
                     {"1f1b", 1, Placement::Wrapped, BackwardPass::Joined, oneForwardOneBackward},
                     {"interleaved", 0, Placement::Wrapped, BackwardPass::Joined, interleaved},
                     {"zb-h1", 1, Placement::Wrapped, BackwardPass::Split, zeroBubbleH1},
                     {"zb-h2", 1, Placement::Wrapped, BackwardPass::Split, zeroBubbleH2},
                     {"zb-v", 2, Placement::V, BackwardPass::Split, zeroBubbleV}};

const Named &find(const std::string &name) {
  const Named *named = std::find_if(std::begin(all), std::end(all), [&](const Named &one) { return name == one.name; });
  if (named == std::end(all))
    throw userError(fmt::format("schedule \"{}\" is unknown; there are {}{}", name, fmt::join(namedSchedules(), ", "),
                                suggestion(name, namedSchedules())));
  return *named;
}

} // namespace

const std::vector<std::string> &namedSchedules() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const Named &named : all)
      list.push_back(named.name);
    return list;
  }();
  return names;
}

int64_t chunksOf(const std::string &name) { return find(name).chunks; }

Placement placementOf(const std::string &name) { return find(name).placement; }

BackwardPass backwardOf(const std::string &name) { return find(name).backward; }

std::optional<std::string> checkNamedSizes(const std::string &name, int64_t ranks, int64_t chunks,
                                           int64_t microbatches) {
  const Named &named = find(name);
  for (const auto &[what, value] : {std::pair("stages", ranks), {"virtual", chunks}, {"microbatches", microbatches}})
    if (value < 1)
      return fmt::format("schedule {}: {} must be at least 1, found {}", name, what, value);
  if (named.chunks > 0 && chunks != named.chunks)
    return fmt::format("schedule {}: virtual, the stages on each rank, must be {}, found {}", name, named.chunks,
                       chunks);
  if (named.chunks == 0 && chunks < 2)
    return fmt::format("schedule {}: virtual, the stages on each rank, must be at least 2, found {}", name, chunks);
  if (named.chunks == 0 && microbatches % ranks != 0)
    return fmt::format("schedule {}: microbatches must be a multiple of the ranks of the pipeline, found {} "
                       "microbatches and {} ranks",
                       name, microbatches, ranks);
  return std::nullopt;
}

Schedule namedSchedule(const std::string &name, int64_t ranks, int64_t chunks, int64_t microbatches) {
  if (const auto defect = checkNamedSizes(name, ranks, chunks, microbatches))
    throw userError(*defect);
  const Named &named = find(name);
  Schedule schedule{name, ranks, chunks, microbatches, named.placement, named.backward, {}};
  for (int64_t rank = 0; rank < ranks; ++rank) {
    RankOrder order(schedule, rank);
    named.generate(order, schedule, rank);
    schedule.order.push_back(std::move(order.works));
  }
  return schedule;
}

std::vector<Schedule> namedSchedulesOf(const Schedule &shape) {
  std::vector<Schedule> list;
  for (const Named &named : all)
    if ((named.placement == shape.placement || shape.chunks == 1) &&
        !checkNamedSizes(named.name, shape.ranks, shape.chunks, shape.microbatches))
      list.push_back(namedSchedule(named.name, shape.ranks, shape.chunks, shape.microbatches));
  return list;
}

} // namespace cleave::partitioner
