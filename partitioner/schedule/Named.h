// The published schedules. Their orders depend only on the numbers of ranks, chunks and microbatches, so that they are
// valid for stages of any cost. The timelines in Named.cpp assume that forwards, input gradients and weight gradients
// take equal times, and messages none.
#pragma once
#include "partitioner/schedule/Schedule.h"

#include <optional>
#include <string>
#include <vector>

namespace cleave::partitioner {

/// gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-v.
const std::vector<std::string> &namedSchedules();

/// The chunks of a named schedule: 2 for zb-v, 0 (they must be given) for interleaved, otherwise 1. This and the
/// following functions throw userError for an unknown name.
int64_t chunksOf(const std::string &name);

/// Where a named schedule places its stages: zb-v in a V.
Placement placementOf(const std::string &name);

/// Whether a named schedule joins the backward pass (gpipe, 1f1b, interleaved) or splits it.
BackwardPass backwardOf(const std::string &name);

/// Why a named schedule does not support these sizes, or nullopt. Sizes must be at least 1; gpipe, 1f1b, zb-h1 and
/// zb-h2 need chunks = 1, interleaved needs chunks >= 2 and microbatches % ranks = 0, zb-v needs chunks = 2.
std::optional<std::string> checkNamedSizes(const std::string &name, int64_t ranks, int64_t chunks,
                                           int64_t microbatches);

/// A named schedule. Throws userError for sizes that checkNamedSizes refuses.
Schedule namedSchedule(const std::string &name, int64_t ranks, int64_t chunks, int64_t microbatches);

/// The named schedules that exist for the ranks, chunks, microbatches and placement of `shape`.
std::vector<Schedule> namedSchedulesOf(const Schedule &shape);

} // namespace cleave::partitioner
