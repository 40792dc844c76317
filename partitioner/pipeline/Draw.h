// Draws timelines as text.
#pragma once
#include "partitioner/pipeline/Simulate.h"

#include <string>

namespace cleave::partitioner {

/// One line for each rank, at most `width` columns wide: F is a forward; B a backward pass or, if that is split, an
/// input gradient; W a weight gradient; lower case for a rank's second stage and later ones. A dot is idle time. If all
/// times are multiples of the shortest and there is room, works have their microbatch, and "=" continues a work:
///
///   F0 F1 .  B0 =
///
/// Otherwise a column shows what the rank does for most of its time. The last lines give the number of ranks left out
/// (beyond 40) and the time of a column.
std::string drawTimeline(const Schedule &schedule, const PipelineTimeline &timeline, size_t width = 100);

} // namespace cleave::partitioner
