// Offline dynamic storage allocation: buffers with known lifetimes are given offsets so that those alive at the same
// time never overlap and the memory they need together is small. Value structs only, no IR.
//
// The problem is NP-hard. Here: a greedy pass places buffers one by one at the best gap among those already placed
// whose lifetimes meet theirs (Sekiyama et al. 2018; Pisarchyk and Lee 2020, "greedy by size"), for several orders;
// where the result exceeds the lower bound, the buffers that make the peak are moved to the front and the pass is
// repeated. Problems too large for that are placed in order of time with a free list.
#pragma once
#include <cstdint>
#include <vector>

namespace cleave::passes {

/// Both ends belong to it: a buffer that is read at time t and one written at t are alive together.
struct Lifetime {
  int64_t first = 0, last = 0;
  bool operator==(const Lifetime &) const = default;
};

/// A buffer. It may live several times (a frame that microbatch after microbatch uses): it has one offset all the same.
struct Interval {
  uint64_t bytes = 0;
  std::vector<Lifetime> live;
  int64_t fixedOffset = -1; ///< -1: to be chosen; otherwise a multiple of the alignment
};

struct Placement {
  std::vector<uint64_t> offsets; ///< in the order of the intervals, multiples of the alignment
  uint64_t bytes = 0;            ///< largest end of a buffer
  uint64_t lowerBound = 0;       ///< largest sum of bytes alive at one time: no placement needs less
};

/// Places the intervals. Sizes are rounded up to the alignment. Deterministic.
Placement place(const std::vector<Interval> &intervals, uint64_t alignment = 64);

/// Largest sum of (rounded) bytes alive at one time.
uint64_t largestLiveSum(const std::vector<Interval> &intervals, uint64_t alignment = 64);

} // namespace cleave::passes
