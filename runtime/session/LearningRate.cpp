// Learning-rate schedules.
#include "runtime/session/LearningRate.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace cleave {

plan::LearningRateT learningRateOf(const plan::Plan &plan) {
  plan::LearningRateT rate;
  if (plan.training() && plan.training()->rate())
    plan.training()->rate()->UnPackTo(&rate);
  return rate;
}

void resolveEpochs(plan::LearningRateT &rate, int64_t stepsPerEpoch) {
  const auto steps = [&](double epochs) { return std::llround(epochs * double(stepsPerEpoch)); };
  if (rate.warmup_epochs > 0)
    rate.warmup = steps(rate.warmup_epochs);
  if (rate.every_epochs > 0)
    rate.every = std::max<int64_t>(1, steps(rate.every_epochs));
}

/// A half cosine from base to min, after `done` of `length` steps. Without a step it has ended.
static double cosine(const plan::LearningRateT &rate, int64_t done, int64_t length) {
  const double part = length > 0 ? std::clamp(double(done) / double(length), 0.0, 1.0) : 1.0;
  return rate.min + (rate.base - rate.min) * 0.5 * (1 + std::cos(std::numbers::pi * part));
}

bool endsInWarmup(const plan::LearningRateT &rate, int64_t total) {
  return (rate.kind == plan::RateKind::Step || rate.kind == plan::RateKind::WarmupCosine) && rate.warmup > total;
}

double rateAt(const plan::LearningRateT &rate, int64_t step, int64_t total) {
  const int64_t length = rate.steps > 0 ? rate.steps : total;
  if (endsInWarmup(rate, step - 1))
    return rate.base * double(step) / double(rate.warmup);
  switch (rate.kind) {
  case plan::RateKind::Constant:
    return rate.base;
  case plan::RateKind::Step:
    return rate.base * std::pow(rate.gamma, double((step - 1) / rate.every));
  case plan::RateKind::Cosine:
    return cosine(rate, step - 1, length);
  case plan::RateKind::WarmupCosine:
    return cosine(rate, step - 1 - rate.warmup, length - rate.warmup);
  }
  return rate.base;
}

std::optional<int64_t> endOfSchedule(const plan::LearningRateT &rate) {
  const bool falls = rate.kind == plan::RateKind::Cosine || rate.kind == plan::RateKind::WarmupCosine;
  if (!falls || rate.base == 0 || rateAt(rate, rate.steps + 1, rate.steps) != 0)
    return std::nullopt;
  return rate.steps;
}

} // namespace cleave
