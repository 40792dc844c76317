// Writes a simulated iteration as a trace for ui.perfetto.dev and chrome://tracing.
#pragma once
#include "partitioner/simulate/Simulate.h"

#include "runtime/plan/PlanTypes.h"

#include <string>

namespace cleave::partitioner {

/// The kind and module path of a step: "Matmul blocks.0.mlp.up".
std::string stepName(const plan::Plan &plan, const plan::Step &step);

/// Writes Chrome's trace event format: a process for one rank of each class, whose name says how many ranks are like
/// it, and a track per stream, with the names that a real run's trace has (runtime/session/Trace.h). With more than
/// 200,000 steps, consecutive steps of one action on stream 0 are one event. `simulation` has its timeline. Errors name
/// the file (AtomicFile.h).
void writeSimulatedTrace(const std::string &file, const plan::Plan &plan, const Simulation &simulation);

} // namespace cleave::partitioner
