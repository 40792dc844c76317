// The published schedules. Their orders depend on numbers of ranks, chunks and microbatches alone, so that they hold
// for stages of any cost; the timelines in Named.cpp have forward = input gradient = weight gradient, and messages take
// no time.
#pragma once
#include "partitioner/schedule/Schedule.h"

#include <string>
#include <vector>

namespace cleave::partitioner {

/// gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-v.
const std::vector<std::string> &namedSchedules();

/// The chunks with which a named schedule runs where none are given: 2 for zb-v, 0 (they must be given) for
/// interleaved, else 1.
int64_t chunksOf(const std::string &name);

/// Whether a named schedule joins the backward pass (gpipe, 1f1b, interleaved) or splits it. Throws userError for an
/// unknown name.
BackwardPass backwardOf(const std::string &name);

/// A named schedule. Throws userError for an unknown name, sizes below 1, and what the schedule cannot carry:
/// gpipe, 1f1b, zb-h1 and zb-h2 need chunks = 1, interleaved needs chunks >= 2 and microbatches % ranks = 0, zb-v needs
/// chunks = 2.
Schedule namedSchedule(const std::string &name, int64_t ranks, int64_t chunks, int64_t microbatches);

} // namespace cleave::partitioner
