// The learning rate of a step, by the plan's schedule (RateKind in plan.fbs).
#pragma once
#include "runtime/plan/PlanTypes.h"

#include <optional>

namespace cleave {

/// The schedule of a plan, or the schema's defaults if the plan has none. The checker has verified its numbers.
plan::LearningRateT learningRateOf(const plan::Plan &plan);

/// Puts steps in place of lengths in epochs.
void resolveEpochs(plan::LearningRateT &rate, int64_t stepsPerEpoch);

/// The rate of step `step` (1 is the first) in a run of `total` steps.
double rateAt(const plan::LearningRateT &rate, int64_t step, int64_t total);

/// Whether the rate still grows in the last step of a run of `total` steps, so that it never reaches its base.
bool endsInWarmup(const plan::LearningRateT &rate, int64_t total);

/// The last step before a schedule of `rate.steps` steps stays at rate 0; nullopt if it never does.
std::optional<int64_t> endOfSchedule(const plan::LearningRateT &rate);

} // namespace cleave
