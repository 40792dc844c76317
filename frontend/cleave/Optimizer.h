// Optimizers, learning-rate schedules and parameter groups, as plain structs. The formulas are PyTorch's.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace cleave {

/// For a parameter p with gradient g and momentum buffer b:
/// g += weightDecay p;  b = momentum b + g;  p -= lr (nesterov ? g + momentum b : b)
struct Sgd {
  double lr = 0.01, momentum = 0;
  bool nesterov = false;
  double weightDecay = 0;
};

/// Kingma and Ba 2015; weightDecay is added to the gradient.
struct Adam {
  double lr = 0.001, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weightDecay = 0;
};

/// Loshchilov and Hutter 2019: the decay is decoupled from the gradient, p -= lr weightDecay p.
struct AdamW {
  double lr = 0.001, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weightDecay = 0.01;
};

using Optimizer = std::variant<Sgd, Adam, AdamW>;

// Learning-rate schedules: the learning rate in step s = 1, 2, ..., where lr is the optimizer's.
// Lengths may be given in epochs, whose number of steps the data and the batch decide. No number may be negative.
/// lr
struct ConstantLr {};
/// lr gamma^floor((s - 1) / every), after a warm-up of linear growth
struct StepLr {
  int64_t every = 1000;
  double gamma = 0.1;
  double everyEpochs = 0, warmupEpochs = 0; ///< > 0: instead of `every`; length of the warm-up
};
/// `warmup` steps of linear growth to lr, then a half cosine from lr towards `min` until step `steps`, which counts the
/// warm-up: step s > warmup has min + (lr - min) (1 + cos(pi (s - 1 - warmup) / (steps - warmup))) / 2, so `min` itself
/// is the rate of all steps after `steps` (as in PyTorch, where T_max = steps - warmup). steps = 0 means the number of
/// steps of the run; a resumed run keeps that number.
struct CosineLr {
  double min = 0;
  int64_t warmup = 0, steps = 0;
  double warmupEpochs = 0; ///< > 0: instead of `warmup`
};
/// lr min(1, s / warmup)
struct WarmupLr {
  int64_t warmup = 100;
  double warmupEpochs = 0; ///< > 0: instead of `warmup`
};
using LearningRateSchedule = std::variant<ConstantLr, StepLr, CosineLr, WarmupLr>;

/// Settings for parameters whose path matches the pattern: `*` matches any characters, including dots. `lrScale` is a
/// factor of the learning rate; `weightDecay` replaces the optimizer's. Later groups override earlier ones. A pattern
/// that matches no parameter is an error.
struct ParameterGroup {
  std::string pattern;
  std::optional<double> lrScale = {}, weightDecay = {};
};

} // namespace cleave
