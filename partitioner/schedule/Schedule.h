// Pipeline schedules: the order in which a stage runs its segments over the microbatches.
#pragma once
#include "partitioner/schedule/Segment.h"

#include <cstdint>
#include <string>
#include <vector>

namespace cleave::partitioner {

/// Names that `makeSchedule` accepts.
const std::vector<std::string> &scheduleNames();

/// The order of forward, input_gradient and weight_gradient for every stage. weight_gradient of a microbatch directly
/// follows its input_gradient. Throws userError for an unknown name.
///
/// gpipe (Huang et al. 2019): all forwards, then all backwards in reverse order.
///
///   stage 0  F0 F1 F2 F3 .. .. .. .. B3 B2 B1 B0
///   stage 1  .. F0 F1 F2 F3 B3 B2 B1 B0
///
/// 1f1b (PipeDream-Flush, Narayanan et al. 2021): stage s of P holds at most P - s microbatches. After a warm-up of P -
/// s - 1 forwards it alternates one forward and one backward.
///
///   stage 0  F0 F1 .. B0 F2 B1 F3 B2 .. B3
///   stage 1  .. F0 B0 F1 B1 F2 B2 F3 B3
std::vector<std::vector<ScheduleItem>> makeSchedule(const std::string &name, int64_t stages, int64_t microbatches);

} // namespace cleave::partitioner
