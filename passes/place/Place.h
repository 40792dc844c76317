// Offline dynamic storage allocation: assigns offsets to buffers with known lifetimes, so that buffers live at the same
// time never overlap and the total size is small. Value structs only, no IR.
//
// The problem is NP-hard. A pass places the buffers one by one: in the best gap among the placed buffers with
// overlapping lifetimes (Pisarchyk and Lee 2020, "greedy by size"), or along a contour (Contour.h), in several orders.
// If the result exceeds the lower bound, buffers at the peak are moved to the front and the best pass is repeated. Very
// large problems are placed in time order with a free list.
#pragma once
#include <cstdint>
#include <vector>

namespace cleave::passes {

/// Both ends are inclusive: a buffer last read at time t and one written at t are live together.
struct Lifetime {
  int64_t first = 0, last = 0;
  bool operator==(const Lifetime &) const = default;
};

/// A buffer. It may have several lifetimes (a frame used by several microbatches), but only one offset.
struct Interval {
  uint64_t bytes = 0;
  std::vector<Lifetime> live;
};

struct Placement {
  std::vector<uint64_t> offsets; ///< one per interval, multiples of the alignment
  uint64_t bytes = 0;            ///< largest end of a buffer
  uint64_t lowerBound = 0;       ///< largest sum of bytes live at one time, a lower bound of any placement
};

/// Places the intervals. Sizes are rounded up to the alignment. Deterministic. `tight`: otherwise the first placement
/// that is found.
Placement place(const std::vector<Interval> &intervals, uint64_t alignment = 64, bool tight = true);

/// Largest sum of (rounded) bytes live at one time.
uint64_t largestLiveSum(const std::vector<Interval> &intervals, uint64_t alignment = 64);

} // namespace cleave::passes
