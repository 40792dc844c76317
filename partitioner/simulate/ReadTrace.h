// Reads the trace of a real run, as `--trace` writes it (runtime/session/Trace.h).
#pragma once
#include "runtime/plan/PlanTypes.h"

#include <cstdint>
#include <string>
#include <vector>

namespace cleave::partitioner {

/// A run of a step of a rank; times in seconds, of one clock for all ranks.
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

/// Every rank has every step of its training list in every iteration. Throws userError that names `file` and what is
/// wrong: a text that is torn or no trace, a trace of another plan (`planHash`: PlanFile::hash) or of an evaluation,
/// ranks or steps that are missing, times that are not finite. `plan` has passed the checks of its structure.
MeasuredRun readTrace(const std::string &text, const std::string &file, const plan::Plan &plan,
                      const std::string &planHash);

} // namespace cleave::partitioner
