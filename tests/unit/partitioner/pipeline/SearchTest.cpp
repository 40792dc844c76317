// The searched schedule: never worse than the named ones, within its memory limit, and optimal where all schedules can
// be tried.
#include "partitioner/pipeline/Search.h"
#include "Random.h"
#include "partitioner/pipeline/Greedy.h"
#include "partitioner/pipeline/Improve.h"

#include <cmath>
#include <limits>
#include <numeric>

using namespace cleave::partitioner;

static const double noLimit = std::numeric_limits<double>::infinity();

static double stepOf(const Schedule &schedule, const std::vector<StageCosts> &stages) {
  return simulate(schedule, stages).step;
}

/// All orders of the works of one rank with one stage, in which the works of each microbatch are in order; the backward
/// pass is split, which is never slower.
static std::vector<std::vector<ScheduledWork>> ordersOf(int64_t stage, int64_t microbatches) {
  std::vector<std::vector<ScheduledWork>> all;
  std::vector<int> done(size_t(microbatches), 0);
  std::vector<ScheduledWork> order;
  const Work works[] = {Work::Forward, Work::InputGradient, Work::WeightGradient};
  const auto extend = [&](auto &self) -> void {
    if (int64_t(order.size()) == 3 * microbatches)
      all.push_back(order);
    for (int64_t m = 0; m < microbatches; ++m)
      if (done[size_t(m)] < 3) {
        order.push_back({works[done[size_t(m)]++], stage, m});
        self(self);
        order.pop_back();
        --done[size_t(m)];
      }
  };
  extend(extend);
  return all;
}

/// The shortest step of all schedules of two microbatches within the memory limits; infinity if there is none.
static double shortest(Schedule shape, const std::vector<StageCosts> &stages, const std::vector<double> &limits) {
  double best = noLimit;
  shape.backward = BackwardPass::Split;
  shape.order.assign(size_t(shape.ranks), {});
  const auto extend = [&](auto &self, int64_t rank) -> void {
    if (rank < shape.ranks) {
      for (auto &order : ordersOf(rank, shape.microbatches)) {
        shape.order[size_t(rank)] = order;
        self(self, rank + 1);
      }
    } else if (const auto times = timesOf(shape, stages); times && !rankOverLimit(peakBytes(shape, stages), limits)) {
      double step = 0;
      for (const auto &of : *times)
        step = std::max(step, of.back().end);
      best = std::min(best, step);
    }
  };
  extend(extend, 0);
  return best;
}

TEST_CASE("the search finds the best of all schedules of two microbatches") {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const Schedule shape{"auto", 2 + int64_t(seed % 4 == 0), 1, 2};
    const auto stages = randomCosts(shape.stages(), random);
    std::vector<double> limits = leastBytes(shape, stages);
    for (double &limit : limits)
      limit = random() % 2 ? noLimit : limit * (1 + 0.5 * double(random() % 3));
    const auto found = searchSchedule(shape, stages, limits);
    REQUIRE(found);
    CHECK(stepOf(*found, stages) == Approx(shortest(shape, stages, limits)));
  }
}

TEST_CASE("the searched schedule keeps its memory and is never slower than a named one that does") {
  size_t faster = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    Schedule shape{"auto", 1 + int64_t(random() % 5), 1 + int64_t(random() % 3), 1 + int64_t(random() % 10)};
    if (shape.chunks == 2 && random() % 2)
      shape.placement = Placement::V;
    const auto stages = randomCosts(shape.stages(), random);
    std::vector<double> limits = leastBytes(shape, stages);
    const double factor = std::vector{1.0, 1.3, 2.5, double(shape.ranks), noLimit}[random() % 5];
    for (double &limit : limits)
      limit *= factor;
    const auto found = searchSchedule(shape, stages, limits);
    REQUIRE(found);
    if (found->name == "auto")
      CHECK(!descendingWork(*found));
    else
      CHECK(found->order == namedSchedule(found->name, shape.ranks, shape.chunks, shape.microbatches).order);
    const PipelineTimeline timeline = simulate(*found, stages);
    CHECK(verify(*found, stages, timeline) == "");
    CHECK(timeline.step >= lowestStep(*found, stages) * (1 - 1e-12));
    for (size_t rank = 0; rank < limits.size(); ++rank)
      CHECK(timeline.ranks[rank].peakBytes <= limits[rank] * (1 + 1e-9));
    double best = noLimit;
    for (const std::string &name : namedSchedules()) {
      if (name == "interleaved" ? shape.chunks < 2 || shape.microbatches % shape.ranks != 0
                                : chunksOf(name) != shape.chunks)
        continue;
      const Schedule named = namedSchedule(name, shape.ranks, shape.chunks, shape.microbatches);
      if (named.placement == shape.placement && !rankOverLimit(peakBytes(named, stages), limits))
        best = std::min(best, stepOf(named, stages));
    }
    CHECK(timeline.step <= best * (1 + 1e-12));
    faster += timeline.step < best * 0.999;
  }
  CHECK(faster >= 30); // the search finds faster schedules
}

TEST_CASE("list scheduling ends under every policy where one microbatch and the largest gradient fit") {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const Schedule shape{"", 1 + int64_t(random() % 5), 1 + int64_t(random() % 3), 1 + int64_t(random() % 8),
                         random() % 2 ? Placement::V : Placement::Wrapped};
    const auto stages = randomCosts(shape.stages(), random);
    std::vector<double> limits(size_t(shape.ranks));
    for (int64_t rank = 0; rank < shape.ranks; ++rank)
      for (int64_t chunk = 0; chunk < shape.chunks; ++chunk)
        limits[size_t(rank)] += stages[size_t(shape.stageOf(rank, chunk))].activationBytes;
    const double more = 0.9 * double(random() % 3); // room for a forward, but not for its gradient as well
    for (double &limit : limits)
      limit += stages[0].gradientBytes + more; // the gradients of all stages are equal
    const Policy policy{Policy::First(random() % 3), random() % 2 == 0,
                        double(random() % 3) / 2,    random() % 2 ? noLimit : 0.3 + double(random() % 4) / 2,
                        random() % 2 == 0,           random() % 2 ? 1.0 : 0};
    const auto found = greedySchedule(shape, stages, limits, policy);
    REQUIRE(found);
    CHECK(check(*found) == std::nullopt);
    CHECK(!rankOverLimit(peakBytes(*found, stages), limits));
  }
}

TEST_CASE("local search makes a schedule shorter within its memory") {
  size_t shorter = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const Schedule schedule = namedSchedule("1f1b", 2 + int64_t(random() % 3), 1, 4 + int64_t(random() % 4));
    const auto stages = randomCosts(schedule.stages(), random);
    std::vector<double> limits = peakBytes(schedule, stages);
    for (double &limit : limits)
      limit *= seed % 2 ? 1 : 1.5;
    const Schedule better = improved(schedule, stages, limits, lowestStep(schedule, stages), 3000);
    CHECK(check(better) == std::nullopt);
    CHECK(!rankOverLimit(peakBytes(better, stages), limits));
    CHECK(stepOf(better, stages) <= stepOf(schedule, stages));
    shorter += stepOf(better, stages) < stepOf(schedule, stages) * 0.999;
  }
  CHECK(shorter >= 5); // 1F1B is often optimal within its memory
}

TEST_CASE("ascending microbatches make no schedule slower or larger") {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const int64_t ranks = 1 + int64_t(random() % 4), microbatches = 1 + int64_t(random() % 6);
    const char *name = random() % 2 ? "gpipe" : "zb-v"; // backward passes in descending order; two stages per rank
    Schedule schedule = namedSchedule(name, ranks, chunksOf(name), microbatches);
    const auto stages = randomCosts(schedule.stages(), random);
    // The same microbatches under other names, each in its original place.
    std::vector<int64_t> names(static_cast<size_t>(microbatches));
    std::iota(names.begin(), names.end(), 0);
    std::shuffle(names.begin(), names.end(), random);
    for (auto &order : schedule.order)
      for (ScheduledWork &work : order)
        work.microbatch = names[size_t(work.microbatch)];
    const Schedule sorted = ascending(schedule);
    CHECK(check(sorted) == std::nullopt);
    CHECK(stepOf(sorted, stages) <= stepOf(schedule, stages) * (1 + 1e-12));
    CHECK(peakBytes(sorted, stages) == peakBytes(schedule, stages));
  }
}

TEST_CASE("where a rank cannot hold one microbatch there is no schedule") {
  const Schedule shape{"auto", 2, 2, 4, Placement::V};
  std::mt19937_64 random(1);
  const auto stages = randomCosts(4, random);
  std::vector<double> limits = leastBytes(shape, stages);
  CHECK(searchSchedule(shape, stages, limits));
  limits[1] *= 0.99;
  CHECK(!searchSchedule(shape, stages, limits));
}

TEST_CASE("the search gives the same schedule every time") {
  const Schedule shape{"auto", 3, 2, 7};
  std::mt19937_64 random(5);
  const auto stages = randomCosts(6, random);
  const auto limits = std::vector<double>(3, noLimit);
  CHECK(searchSchedule(shape, stages, limits)->order == searchSchedule(shape, stages, limits)->order);
}
