// Initial values of parameters, buffers and states.
#pragma once
#include "runtime/plan/PlanTypes.h"

#include <cstddef>
#include <cstdint>

namespace cleave {

/// Initialises one slot (`memory` is its memory, and all zeros) as its tensor's Init specifies: by global element
/// index, so the values do not depend on the sharding. Key = seed ^ fnv1a64(tensor name); Uniform uses stream 0, Normal
/// stream 1 (Philox.h).
void initialiseSlot(const plan::Plan &plan, const plan::Rank &rank, const plan::Slot &slot, std::byte *memory,
                    unsigned threads);

} // namespace cleave
