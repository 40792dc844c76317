// PROGRAM check: compares a plan with the reference interpreter. The interpreter runs the step on global shapes with
// plain loops; the plan runs on all its ranks. After every step, each rank's piece of every gradient, buffer, parameter
// and optimizer state is compared. Both sides then continue from the plan's values, so a difference is reported in the
// step that caused it. How far values may be apart follows from the case itself (ir/interpreter/Bounds.h).
#pragma once
#include "cleave/Trainer.h"
#include "ir/GraphModule.h"
#include "runtime/data/DataSource.h"
#include "runtime/plan/PlanFile.h"

namespace cleave {

/// `step`: @train and @update of the plan's model (passes::step). Runs `steps` training steps on `source`.
CheckResult checkPlanAgainstGraph(std::shared_ptr<const PlanFile> plan, const GraphModule &step,
                                  const DataSource &source, int64_t steps, unsigned threads);

} // namespace cleave
