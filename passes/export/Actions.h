// Actions of a program, the sends they wait for, lifetimes of slots over an iteration, placement and layouts.
#pragma once
#include "passes/export/ProgramBuilder.h"

namespace cleave::passes {

/// Sets train, eval, layouts, slot offsets and memory sizes of the program, and moves its segments into it.
///
/// Waits: a message of "forward" is waited for when the same microbatch returns ("input_gradient", else
/// "weight_gradient"); any other message two microbatches later, or at the end of the iteration. Until then its slot is
/// live. Placement: Timeline.h.
void writeActions(ProgramBuilder &builder, const std::vector<partitioner::ScheduleItem> &train,
                  const std::vector<partitioner::ScheduleItem> &eval);

} // namespace cleave::passes
