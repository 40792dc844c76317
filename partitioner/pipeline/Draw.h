// Timelines as text.
#pragma once
#include "partitioner/pipeline/Simulate.h"

#include <string>

namespace cleave::partitioner {

/// One line for each rank, at most `width` columns wide: F is a forward; B a backward pass or,
/// where it is split, an input gradient; W a weight gradient; in lower case in a rank's second stage and later ones. A
/// dot is idle. Where all times are multiples of the shortest and there is room, works have their microbatch, and "="
/// continues one: "F0 F1 .  B0 = ". Otherwise a column is what the rank does for most of its time. Ends with lines that
/// say what a column is, and how many ranks are left out (beyond 40).
std::string drawTimeline(const Schedule &schedule, const Timeline &timeline, size_t width = 100);

} // namespace cleave::partitioner
