// Actions of a program, the sends they wait for, lifetimes of slots over a whole iteration, placement and layouts.
#pragma once
#include "passes/export/Program.h"

namespace cleave::passes {

/// Fills train, eval, layouts, slot offsets and memory sizes of the program, and moves its segments into it.
///
/// Waits: a message of "forward" is waited for when the same microbatch comes back ("input_gradient", else
/// "weight_gradient"), any other two microbatches later, or where the iteration is concluded. Until then its slot lives.
///
/// Microbatches in flight at the same time have different frames, 0, 1, ...; what a slot is for one frame has one place,
/// so there are at most as many layouts as segments times frames (times microbatches where a segment reads inputs).
void scheduleProgram(ProgramBuilder &builder, const std::vector<partitioner::ScheduleItem> &train,
                     const std::vector<partitioner::ScheduleItem> &eval);

} // namespace cleave::passes
