// Learning-rate schedules: the rate of a step as a function of its number, read from Plan.training.
#pragma once
#include <cstdint>
#include <string>

namespace cleave {

/// Rates for step s, counted from 1:
///   constant       base
///   step           base * gamma^floor((s - 1) / every)
///   cosine         min + (base - min) * (1 + cos(pi * min(1, (s - 1) / steps))) / 2
///   warmup_cosine  base * s / warmup for s <= warmup, then the cosine over the remaining steps
struct LearningRate {
  enum class Kind { Constant, Step, Cosine, WarmupCosine };
  Kind kind = Kind::Constant;
  double base = 0.01;
  double min = 0;
  double gamma = 0.1;
  int64_t warmup = 0;
  int64_t steps = 0; ///< length of the whole schedule; 0: that of the run
  int64_t every = 1;

  /// Reads {"lr":{"kind","base","min","warmup","steps","gamma","every"}}; an empty text is the default. Throws
  /// environmentError that names an invalid key and value.
  static LearningRate parse(const std::string &training);
  /// Returns `training` with the schedule's length if it is not set: checkpoints store it, so that a run resumed for
  /// more steps continues on the same curve.
  static std::string withLength(const std::string &training, int64_t steps);
  /// The rate of step `step` (counted from 1) in a run of `total` steps.
  double at(int64_t step, int64_t total) const;
};

} // namespace cleave
