// Reads the trace of a real run, as `--trace` writes it (runtime/session/Trace.h).
#pragma once
#include "runtime/plan/PlanTypes.h"

#include <cstdint>
#include <string>
#include <vector>

namespace cleave::partitioner {

/// One execution of a step by a rank; times in seconds, by one clock for all ranks.
struct MeasuredStep {
  uint32_t segment, step;
  int32_t microbatch;
  uint32_t iteration; ///< from 0
  double begin, seconds;
};

struct MeasuredRun {
  uint32_t iterations = 0;
  std::vector<std::vector<MeasuredStep>> ranks; ///< by rank, by iteration and then by begin
};

/// Reads a trace in which every rank has every step of its training list in every iteration. Throws userError that
/// names `file` and the defect: truncated text or no trace, a trace of another plan (`planHash`: PlanFile::hash) or of
/// an evaluation, missing ranks or steps, times that are not finite. `plan` has passed the checks of its structure.
MeasuredRun readTrace(const std::string &text, const std::string &file, const plan::Plan &plan,
                      const std::string &planHash);

} // namespace cleave::partitioner
