// The schedule in which gradients are added in another order. The table of schedules is partitioner/schedule/Named.cpp.
#pragma once

namespace cleave {

/// The name of the schedule under which stages compute the gradients of microbatches from the last one to the first, so
/// that they are added in this order. Under all others they compute them from the first to the last.
inline constexpr const char *const descendingSchedule = "gpipe";

} // namespace cleave
