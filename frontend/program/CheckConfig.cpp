// Checks the optimizer, the learning-rate schedule and the other numbers of a TrainConfig.
#include "frontend/program/CheckConfig.h"
#include "frontend/program/Options.h"
#include "runtime/base/Error.h"

#include <fmt/format.h>

namespace cleave {

namespace {

constexpr Limits fractions{0, 1}, positive{0, 1e30};
constexpr int64_t mostLength = std::numeric_limits<int64_t>::max(), mostOfBatch = std::numeric_limits<int32_t>::max();

void refuse(const std::string &field, const std::string &value, const std::string &problem) {
  if (!problem.empty())
    throw userError(fmt::format("TrainConfig: {} is {}, {}", field, value, problem));
}

void checkNumber(const std::string &field, double value, const Limits &limits) {
  const std::string text = fmt::format("{}", value);
  refuse(field, text, problemOfNumber(limits, text));
}

/// The limits are those of an option.
void checkAs(const char *option, const std::string &field, double value) {
  for (const Option &row : programOptions())
    if (row.name == std::string_view(option))
      checkNumber(field, value, row.limits);
}

void checkWhole(const std::string &field, int64_t value, int64_t least, int64_t most) {
  const std::string text = fmt::format("{}", value);
  refuse(field, text, problemOfWhole(text, least, most));
}

template <class O> void checkOptimizer(const O &optimizer, const std::string &name) {
  checkAs("--lr", name + "::lr", optimizer.lr);
  checkAs("--weight-decay", name + "::weightDecay", optimizer.weightDecay);
  if constexpr (requires { optimizer.momentum; }) {
    checkAs("--momentum", name + "::momentum", optimizer.momentum);
  } else {
    checkNumber(name + "::beta1", optimizer.beta1, fractions);
    checkNumber(name + "::beta2", optimizer.beta2, fractions);
    checkNumber(name + "::eps", optimizer.eps, positive);
  }
}

template <class S> void checkScheduleOf(const S &schedule, const std::string &name) {
  if constexpr (requires { schedule.warmupEpochs; })
    checkAs("--warmup-epochs", name + "::warmupEpochs", schedule.warmupEpochs);
  if constexpr (requires { schedule.warmup; })
    checkWhole(name + "::warmup", schedule.warmup, 0, mostLength);
  if constexpr (requires { schedule.steps; }) {
    checkWhole(name + "::steps", schedule.steps, 0, mostLength);
    if (schedule.steps > 0 && schedule.warmupEpochs == 0)
      checkWhole(name + "::warmup", schedule.warmup, 0, schedule.steps);
  }
  if constexpr (requires { schedule.min; })
    checkNumber(name + "::min", schedule.min, positive);
  if constexpr (requires { schedule.every; }) {
    checkAs("--every-epochs", name + "::everyEpochs", schedule.everyEpochs);
    if (schedule.everyEpochs == 0)
      checkWhole(name + "::every", schedule.every, 1, mostLength);
    checkNumber(name + "::gamma", schedule.gamma, positive);
  }
}

} // namespace

void checkConfig(const TrainConfig &config) {
  constexpr const char *optimizers[] = {"Sgd", "Adam", "AdamW"};
  std::visit([&](const auto &o) { checkOptimizer(o, optimizers[config.optimizer.index()]); }, config.optimizer);
  constexpr const char *schedules[] = {"ConstantLr", "StepLr", "CosineLr", "WarmupLr"};
  std::visit([&](const auto &s) { checkScheduleOf(s, schedules[config.learningRate.index()]); }, config.learningRate);
  checkAs("--ema", "ema", config.ema);
  checkNumber("clipNorm", config.clipNorm, positive);
  for (const ParameterGroup &group : config.groups) {
    const std::string name = fmt::format("the group \"{}\": ", group.pattern);
    if (group.lrScale)
      checkNumber(name + "lrScale", *group.lrScale, positive);
    if (group.weightDecay)
      checkAs("--weight-decay", name + "weightDecay", *group.weightDecay);
  }
  checkWhole("learningRateBatch", config.learningRateBatch, 0, mostOfBatch);
  checkWhole("batchPerRank", config.batchPerRank, 0, mostOfBatch);
  checkWhole("evalBatch", config.evalBatch, 0, mostOfBatch);
}

} // namespace cleave
