// Placement along a contour: the height, at every time, up to which memory is taken. The lowest segment of the contour
// gets the first buffer of an order that lives within it; if none does, the segment is lifted to its lower neighbour
// (Burke et al. 2004, "best-fit" strip packing; Sekiyama et al. 2018 for memory).
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace cleave::passes {

/// One lifetime of one buffer; both ends are inclusive.
struct Piece {
  int64_t first, last;
  uint32_t interval;
};

class Contour {
public:
  /// `sizes`: the bytes of every buffer.
  Contour(const std::vector<Piece> &pieces, const std::vector<uint64_t> &sizes);

  /// Places in this order and returns the bytes needed; UINT64_MAX if they are more than `most`. Adds to `work` what is
  /// examined.
  uint64_t place(const std::vector<uint32_t> &order, uint64_t most, std::vector<uint64_t> &offsets, uint64_t &work);

private:
  struct Segment {
    uint32_t begin, end; // of time
    uint64_t height;
  };
  using Live = std::vector<std::pair<uint32_t, uint32_t>>; // begin and end of each lifetime

  bool fits(const Live &lifetimes, const Segment &lowest) const;
  size_t segmentAt(uint32_t time) const;
  void lift(size_t lowest);
  void raise(const Live &lifetimes, uint64_t height);

  const std::vector<uint64_t> &sizes;
  std::vector<Live> live;
  uint32_t horizon = 0;
  std::vector<Segment> segments; // in time order; neighbours differ in height
};

} // namespace cleave::passes
