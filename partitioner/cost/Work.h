// The work of one step of a plan for the cost model.
//
// StepWork is a plain value, so that it can be written down without a plan: by a test, or by a search for a split.
#pragma once
#include "partitioner/cluster/Cluster.h"
#include "runtime/plan/steps/Work.h"

namespace cleave::partitioner {

/// "product", "convolution", ...
const char *workClassName(WorkClass kind);

struct StepWork : steps::Work {
  Rate rate = Rate::Fp32; ///< precision of the factors
};

/// The work of a step of a checked plan. A product of f32 factors has the rate tf32 if the plan's training allows it.
StepWork workOf(const plan::Plan &plan, const plan::Program &program, const plan::Step &step);

} // namespace cleave::partitioner
