// The published schedules. Their orders depend only on the numbers of ranks, chunks and microbatches, so that they are
// valid for stages of any cost. The timelines in Named.cpp assume that forwards, input gradients and weight gradients
// take equal times, and messages none.
#pragma once
#include "partitioner/schedule/Schedule.h"

#include <string>
#include <vector>

namespace cleave::partitioner {

/// gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-v.
const std::vector<std::string> &namedSchedules();

/// The default number of chunks of a named schedule: 2 for zb-v, 0 (it must be given) for interleaved, otherwise 1.
int64_t chunksOf(const std::string &name);

/// Whether a named schedule joins the backward pass (gpipe, 1f1b, interleaved) or splits it. Throws userError for an
/// unknown name.
BackwardPass backwardOf(const std::string &name);

/// A named schedule. Throws userError for an unknown name, sizes below 1, and sizes that the schedule does not support:
/// gpipe, 1f1b, zb-h1 and zb-h2 need chunks = 1, interleaved needs chunks >= 2 and microbatches % ranks = 0, zb-v needs
/// chunks = 2.
Schedule namedSchedule(const std::string &name, int64_t ranks, int64_t chunks, int64_t microbatches);

} // namespace cleave::partitioner
