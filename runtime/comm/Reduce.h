// The arithmetic of reductions, shared by all communicators so that they give the same bits: inputs are combined in
// order 0, 1, ...; 16-bit formats are added in f32 and rounded once.
#pragma once
#include "runtime/plan/PlanTypes.h"
#include "runtime/plan/Slices.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace cleave {

/// out[i] = inputs[0][i] op inputs[1][i] op ... for `count` elements, starting at element `offset` of each input. `out`
/// (without the offset) may be one of the inputs at the same position.
void reduceElements(plan::DType dtype, plan::ReduceKind kind, std::span<const void *const> inputs, int64_t offset,
                    void *out, int64_t count);

/// Member `member`'s part of `count` elements of `element` bytes, in whole cache lines: {begin, count}.
Part splitLines(int64_t count, int64_t element, unsigned members, unsigned member);

/// Maximum number of elements that `members` members may reduce in one exchange, so that every member's share, rounded
/// up to the largest, fits in `room` elements: a multiple of `members`, at least one per member.
inline int64_t exchangeBlock(int64_t room, int64_t members) {
  return room < members ? members : room / members * members;
}

} // namespace cleave
