// Actions of a program, the sends they wait for, lifetimes of slots over a whole iteration, placement and layouts.
#pragma once
#include "passes/export/Program.h"

namespace cleave::passes {

/// Fills train, eval, layouts, slot offsets and memory sizes of the program, and moves its segments into it.
///
/// Waits: a message of "forward" is waited for when the same microbatch comes back ("input_gradient", else
/// "weight_gradient"), any other two microbatches later, or where the iteration is concluded. Until then its slot
/// lives. Placement: Timeline.h.
void placeAndSchedule(ProgramBuilder &builder, const std::vector<partitioner::ScheduleItem> &train,
                      const std::vector<partitioner::ScheduleItem> &eval);

} // namespace cleave::passes
