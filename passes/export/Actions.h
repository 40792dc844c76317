// Actions of a program, the sends they wait for, lifetimes of slots over an iteration, placement and layouts.
#pragma once
#include "passes/export/ProgramBuilder.h"
#include "passes/export/SendWaits.h"
#include "passes/overlap/Overlap.h"

namespace cleave::passes {

/// The schedule of a program's ranks, and the places at which ranks wait for their sends.
struct OwnSchedule {
  const std::vector<partitioner::ScheduleItem> &items;
  const SendWaits &waits;
};

/// Sets train, eval, layouts, slot offsets and memory sizes of the program, and moves its segments into it.
///
/// A slot that is sent is live until its rank waits for the message (SendWaits.h). Where collectives run concurrently
/// with other steps, slots that they read are live until the collectives must have ended, and those that sums of
/// gradients write are reserved from when the gradients are made.
/// Placement, and `tight`: ArenaTimeline.h.
void writeActions(ProgramBuilder &builder, OwnSchedule train, OwnSchedule eval, CollectiveStreams streams, bool tight);

} // namespace cleave::passes
