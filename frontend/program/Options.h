// The options of every program: those of sessions (runtime/options) and those that decide what is compiled.
#pragma once
#include "runtime/options/Option.h"
#include "runtime/plan/PlanTypes.h"

namespace cleave {

const std::vector<Option> &programOptions();

/// The training of a plan.
plan::TrainingT trainingOf(const plan::Plan &plan);

} // namespace cleave
