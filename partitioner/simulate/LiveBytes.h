// The part of the arena that holds values, action by action.
#pragma once
#include "runtime/plan/PlanTypes.h"

#include <cstdint>
#include <vector>

namespace cleave::partitioner {

/// Bytes of placed slots during an action. Their sum is at most the arena's part for placed slots.
struct LiveBytes {
  uint64_t kept = 0;    ///< values of other actions, which a later action of their microbatch needs
  uint64_t running = 0; ///< that the action itself uses
};

/// By action of the training list. A value lives from the first to the last action of its microbatch that uses its
/// slot.
std::vector<LiveBytes> liveBytes(const plan::Program &program);

} // namespace cleave::partitioner
