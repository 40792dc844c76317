// Learning-rate schedules against their formulas (runtime/plan/plan.fbs).
#include "runtime/plan/plan_generated.h"
#include "runtime/session/LearningRate.h"

#include <catch2/catch.hpp>
#include <numbers>
#include <random>

using namespace cleave;

static plan::LearningRateT schedule(plan::RateKind kind, int64_t warmup = 0, int64_t steps = 0, double min = 0) {
  plan::LearningRateT rate;
  rate.kind = kind;
  rate.base = 0.5;
  rate.warmup = warmup;
  rate.steps = steps;
  rate.min = min;
  return rate;
}

TEST_CASE("every schedule follows its formula, and falls to its end") {
  std::mt19937 random(1);
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int round = 0; round < 500; ++round) {
    const int64_t warmup = draw(0, 12), steps = std::max<int64_t>(1, warmup + draw(0, 12)), every = draw(1, 5);
    const double min = draw(0, 1) ? 0.125 : 0;
    plan::LearningRateT cosine = schedule(plan::RateKind::WarmupCosine, warmup, steps, min),
                        stairs = schedule(plan::RateKind::Step, warmup);
    stairs.every = every;
    stairs.gamma = 0.5;
    for (int64_t s = 1; s <= steps + 5; ++s) {
      INFO("warmup " << warmup << " steps " << steps << " step " << s);
      const double grown = 0.5 * double(s) / double(warmup);
      const double part = double(s - 1 - warmup) / double(steps - warmup);
      const double fallen = min + (0.5 - min) * (1 + std::cos(std::numbers::pi * part)) / 2;
      CHECK(rateAt(cosine, s, 99) == Approx(s <= warmup ? grown : s > steps ? min : fallen).margin(1e-15));
      CHECK(rateAt(stairs, s, 99) == Approx(s <= warmup ? grown : 0.5 * std::pow(0.5, (s - 1) / every)));
    }
    CHECK(endOfSchedule(cosine) == (min > 0 ? std::nullopt : std::optional(steps)));
  }
}

TEST_CASE("a schedule without a length has that of the run") {
  const plan::LearningRateT rate = schedule(plan::RateKind::Cosine);
  CHECK(rateAt(rate, 1, 10) == 0.5);
  CHECK(rateAt(rate, 6, 10) == Approx(0.25));
  CHECK(rateAt(rate, 11, 10) == Approx(0).margin(1e-15));
}

TEST_CASE("a warm-up may be longer than the training") {
  const plan::LearningRateT rate = schedule(plan::RateKind::WarmupCosine, 20);
  CHECK(endsInWarmup(rate, 19));
  CHECK(!endsInWarmup(rate, 20));
  CHECK(rateAt(rate, 10, 19) == 0.25);
  CHECK(!endsInWarmup(schedule(plan::RateKind::Cosine, 20), 19));
}
