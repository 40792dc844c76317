// Copies boxes between arrays.
#include "runtime/checkpoint/CopyBox.h"

#include <cstring>
#include <vector>

namespace cleave {

void copyBox(std::byte *dst, std::span<const int64_t> dstShape, std::span<const int64_t> dstStart, const std::byte *src,
             std::span<const int64_t> srcShape, std::span<const int64_t> srcStart, std::span<const int64_t> size,
             size_t width) {
  const size_t rank = size.size();
  for (int64_t extent : size)
    if (extent == 0)
      return;
  // Trailing dimensions that are complete on both sides, and the dimension before them, form one contiguous run.
  int64_t run = 1;
  size_t outer = rank;
  while (outer > 0) {
    const size_t d = outer - 1;
    run *= size[d];
    outer = d;
    if (size[d] != srcShape[d] || size[d] != dstShape[d])
      break;
  }
  std::vector<int64_t> at(outer, 0), srcStride(rank, 1), dstStride(rank, 1);
  for (size_t d = rank; d-- > 1;) {
    srcStride[d - 1] = srcStride[d] * srcShape[d];
    dstStride[d - 1] = dstStride[d] * dstShape[d];
  }
  for (;;) {
    int64_t from = 0, to = 0;
    for (size_t d = 0; d < rank; ++d) {
      const int64_t step = d < outer ? at[d] : 0;
      from += (srcStart[d] + step) * srcStride[d];
      to += (dstStart[d] + step) * dstStride[d];
    }
    std::memcpy(dst + to * int64_t(width), src + from * int64_t(width), size_t(run) * width);
    size_t d = outer;
    while (d > 0 && ++at[d - 1] == size[d - 1])
      at[--d] = 0;
    if (d == 0)
      return;
  }
}

} // namespace cleave
