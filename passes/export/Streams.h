// For GPU plans only: every step's stream, the waits between streams, the workspace of library steps.
#pragma once
#include "runtime/plan/plan_generated.h"

namespace mlir {
class MLIRContext;
}

namespace cleave::passes {

/// Sets Step.stream, Action.waits and the programs' workspace and peak bytes. The plan must be complete except for
/// code. Programs are analysed on the context's threads.
void assignStreams(plan::PlanT &plan, CollectiveStreams streams, mlir::MLIRContext *context);

} // namespace cleave::passes
