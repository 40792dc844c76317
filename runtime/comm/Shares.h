// The members' shares of the tensor of an all-gather or a reduce-scatter: the whole is [outer, sum of sizes, inner], a
// member's share [outer, its size, inner].
#pragma once
#include "runtime/comm/Communicator.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace cleave {

/// memcpy that accepts null pointers for 0 bytes, because empty shares have no memory.
inline void copyBytes(void *to, const void *from, int64_t bytes) {
  if (bytes > 0)
    std::memcpy(to, from, static_cast<size_t>(bytes));
}

class Shares {
public:
  /// `element`: bytes of one.
  Shares(const CollectivePart &part, int64_t element)
      : part(part), unit(part.inner * element),
        row(std::accumulate(part.sizes.begin(), part.sizes.end(), int64_t{0}) * unit) {}
  /// Bytes of a member's share.
  int64_t bytes(unsigned member) const { return part.sizes[member] * unit * part.outer; }
  int64_t largest() const {
    int64_t most = 0;
    for (unsigned m = 0; m < part.sizes.size(); ++m)
      most = std::max(most, bytes(m));
    return most;
  }
  /// How many of the `most` bytes from `begin` on a member's share has.
  int64_t bytesFrom(unsigned member, int64_t begin, int64_t most) const {
    return std::clamp<int64_t>(bytes(member) - begin, 0, most);
  }
  /// Copies bytes [begin, begin + count) of a member's share from the whole tensor to `flat`, or back.
  void fromWhole(unsigned member, int64_t begin, int64_t count, const void *whole, std::byte *flat) const {
    eachRun(member, begin, count, [&](int64_t inWhole, int64_t inFlat, int64_t bytes) {
      copyBytes(flat + inFlat, static_cast<const std::byte *>(whole) + inWhole, bytes);
    });
  }
  void toWhole(unsigned member, int64_t begin, int64_t count, const std::byte *flat, void *whole) const {
    eachRun(member, begin, count, [&](int64_t inWhole, int64_t inFlat, int64_t bytes) {
      copyBytes(static_cast<std::byte *>(whole) + inWhole, flat + inFlat, bytes);
    });
  }
  /// Calls visit(place in the whole, place in the flat bytes, bytes) for each run of bytes that are contiguous in both.
  template <typename Visit> void eachRun(unsigned member, int64_t begin, int64_t count, Visit visit) const {
    const int64_t mine = part.sizes[member] * unit;
    const int64_t start = std::accumulate(part.sizes.begin(), part.sizes.begin() + member, int64_t{0}) * unit;
    for (int64_t at = begin; at < begin + count;) {
      const int64_t inside = at % mine, bytes = std::min(mine - inside, begin + count - at);
      visit(at / mine * row + start + inside, at - begin, bytes);
      at += bytes;
    }
  }

private:
  const CollectivePart &part;
  int64_t unit, row; ///< bytes of an index of the shared dimension, and of a row of the whole
};

} // namespace cleave
