// Learning-rate schedules.
#include "runtime/session/LearningRate.h"
#include "runtime/base/Error.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <numbers>

namespace cleave {

static LearningRate::Kind parseKind(const std::string &kind) {
  if (kind == "constant")
    return LearningRate::Kind::Constant;
  if (kind == "step")
    return LearningRate::Kind::Step;
  if (kind == "cosine")
    return LearningRate::Kind::Cosine;
  if (kind == "warmup_cosine")
    return LearningRate::Kind::WarmupCosine;
  throw environmentError(
      fmt::format("plan training: lr.kind must be constant, step, cosine or warmup_cosine, found {}", kind));
}

LearningRate LearningRate::parse(const std::string &training) {
  LearningRate rate;
  if (training.empty())
    return rate;
  try {
    const auto json = nlohmann::json::parse(training);
    if (!json.contains("lr"))
      return rate;
    const auto &lr = json.at("lr");
    rate.kind = parseKind(lr.value("kind", "constant"));
    rate.base = lr.value("base", rate.base);
    rate.min = lr.value("min", rate.min);
    rate.gamma = lr.value("gamma", rate.gamma);
    rate.warmup = lr.value("warmup", rate.warmup);
    rate.steps = lr.value("steps", rate.steps);
    rate.every = lr.value("every", rate.every);
  } catch (const nlohmann::json::exception &e) {
    throw environmentError(fmt::format("plan training: not the expected JSON object: {}", e.what()));
  }
  if (!std::isfinite(rate.base) || !std::isfinite(rate.gamma) || !std::isfinite(rate.min))
    throw environmentError(fmt::format("plan training: lr.base must be finite, found {}", rate.base));
  if (rate.every < 1 || rate.warmup < 0 || rate.steps < 0)
    throw environmentError(fmt::format("plan training: lr.every must be positive, warmup and steps not negative, found "
                                       "every {}, warmup {}, steps {}",
                                       rate.every, rate.warmup, rate.steps));
  return rate;
}

std::string LearningRate::withLength(const std::string &training, int64_t steps) {
  auto json = nlohmann::ordered_json::parse(training, nullptr, false);
  if (!json.is_object() || !json.contains("lr") || !json.at("lr").is_object())
    return training;
  auto &lr = json.at("lr");
  const std::string kind = lr.value("kind", "");
  if ((kind != "cosine" && kind != "warmup_cosine") || lr.value("steps", int64_t(0)) > 0)
    return training;
  lr["steps"] = steps;
  return json.dump();
}

/// A half cosine from base to min, after `done` of `length` steps.
static double cosine(const LearningRate &rate, int64_t done, int64_t length) {
  const double part = length > 0 ? std::clamp(double(done) / double(length), 0.0, 1.0) : 0.0;
  return rate.min + (rate.base - rate.min) * 0.5 * (1 + std::cos(std::numbers::pi * part));
}

double LearningRate::at(int64_t step, int64_t total) const {
  const int64_t length = steps > 0 ? steps : total;
  switch (kind) {
  case Kind::Constant:
    return base;
  case Kind::Step:
    return base * std::pow(gamma, double((step - 1) / every));
  case Kind::Cosine:
    return cosine(*this, step - 1, length);
  case Kind::WarmupCosine:
    return step <= warmup ? base * double(step) / double(warmup) : cosine(*this, step - 1 - warmup, length - warmup);
  }
  return base;
}

} // namespace cleave
