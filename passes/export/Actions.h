// Actions of a program, the sends they wait for, lifetimes of slots over an iteration, placement and layouts.
#pragma once
#include "passes/export/ProgramBuilder.h"
#include "passes/export/SendWaits.h"

namespace cleave::passes {

/// What a program's ranks run, and where they wait for what they have sent.
struct OwnSchedule {
  const std::vector<partitioner::ScheduleItem> &items;
  const SendWaits &waits;
};

/// Sets train, eval, layouts, slot offsets and memory sizes of the program, and moves its segments into it.
///
/// A slot that is sent is live until its rank waits for the message (SendWaits.h). `streams`: collectives run beside
/// other steps (GPUs); what they read is live until they must have ended. Placement: Timeline.h.
void writeActions(ProgramBuilder &builder, OwnSchedule train, OwnSchedule eval, bool streams);

} // namespace cleave::passes
