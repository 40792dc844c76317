// The arithmetic of reductions, shared by all communicators so that they give the same bits: inputs are combined in
// order 0, 1, ..., 16-bit formats in f32 with one rounding at the end.
#pragma once
#include "runtime/plan/PlanTypes.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace cleave {

/// out[i] = inputs[0][i] op inputs[1][i] op ... for `count` elements from element `offset` of each input on. `out`
/// (given at its own start, not offset) may be one of the inputs at the same place.
void reduceElements(plan::DType dtype, plan::ReduceKind kind, std::span<const void *const> inputs, int64_t offset,
                    void *out, int64_t count);

/// Most elements that an exchange among `members` may sum at once, where every member's share, rounded up to the
/// largest, must fit `room` elements: a multiple of `members`, at least one each.
inline int64_t exchangeBlock(int64_t room, int64_t members) {
  return room < members ? members : room / members * members;
}

} // namespace cleave
