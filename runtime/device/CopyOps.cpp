// Strided copies and fills. Contiguous dimensions are merged first. A copy is then a loop over memcpy if both sides are
// contiguous in the same dimension, a tiled transpose if they are contiguous in different dimensions, and plain loops
// otherwise.
#include "runtime/device/CopyShape.h"
#include "runtime/device/HostDevice.h"
#include "runtime/device/Parallel.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <cstring>

namespace cleave {

namespace {

/// Kind of the innermost part of a copy.
enum class Inner { Memcpy, Fill, Transpose, Strided };

/// dst[r * dstStride + c] = src[r + c * srcStride]. Copies tiles through a buffer, so that each cache line of either
/// side is accessed once; otherwise lines at power-of-two distances would evict each other.
template <typename T>
void transpose(const T *src, T *dst, int64_t rows, int64_t columns, int64_t srcStride, int64_t dstStride) {
  constexpr int64_t tile = 128 / sizeof(T); // two cache lines: the best measured of 8 to 32 elements, in this order
  alignas(64) T buffer[tile][tile];
  for (int64_t c0 = 0; c0 < columns; c0 += tile)
    for (int64_t r0 = 0; r0 < rows; r0 += tile) {
      int64_t height = std::min(tile, rows - r0), breadth = std::min(tile, columns - c0);
      const T *from = src + r0 + c0 * srcStride;
      T *to = dst + r0 * dstStride + c0;
      if (height == tile && breadth == tile) { // constant bounds allow vectorisation
        for (int64_t c = 0; c < tile; ++c)
          for (int64_t r = 0; r < tile; ++r)
            buffer[r][c] = from[r + c * srcStride];
        for (int64_t r = 0; r < tile; ++r)
          std::memcpy(to + r * dstStride, buffer[r], tile * sizeof(T));
        continue;
      }
      for (int64_t c = 0; c < breadth; ++c)
        for (int64_t r = 0; r < height; ++r)
          buffer[r][c] = from[r + c * srcStride];
      for (int64_t r = 0; r < height; ++r)
        std::memcpy(to + r * dstStride, buffer[r], static_cast<size_t>(breadth) * sizeof(T));
    }
}

template <typename T> class CopyOp final : public Op {
public:
  CopyOp(const plan::Copy &copy, SlotScope &scope, unsigned threads)
      : src(operandOf(*copy.src(), scope)), dst(operandOf(*copy.dst(), scope)), dims(copyDims(copy)) {
    src.offset += scope.scalar(copy.src_offset_scalar(), 0) * static_cast<int64_t>(sizeof(T));
    chooseInner();
    int64_t total = 1;
    for (const CopyDim &dim : dims)
      total *= dim.size;
    this->threads = total * static_cast<int64_t>(sizeof(T)) < (64 << 10) ? 1 : threads;
    empty = total == 0;
    for (size_t d = 0; d + innerDims < dims.size(); ++d)
      outer *= dims[d].size;
    int64_t inside = std::max<int64_t>(1, total / std::max<int64_t>(1, outer));
    grain = std::max<int64_t>(1, 4096 / inside);
  }

  void run(SlotTable slots, const RunContext &) override {
    if (empty)
      return;
    const T *from = reinterpret_cast<const T *>(src.at(slots));
    T *to = reinterpret_cast<T *>(dst.at(slots));
    if (outer == 1 && threads > 1)
      return runInnerParallel(from, to);
    parallelRange(threads, outer, grain, [&](int64_t begin, int64_t end) { runOuter(from, to, begin, end); });
  }

private:
  void chooseInner() {
    if (dims.empty())
      dims.push_back({1, 1, 1});
    // Transpose: moves the dimension in which src is contiguous to the last but one position.
    if (dims.size() >= 2 && dims.back().dst == 1 && dims.back().src != 1 && dims.back().src != 0)
      for (size_t d = 0; d + 1 < dims.size(); ++d)
        if (dims[d].src == 1 && dims[d].dst != 0) {
          CopyDim dim = dims[d];
          dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(d));
          dims.insert(dims.end() - 1, dim);
          inner = Inner::Transpose;
          innerDims = 2;
          return;
        }
    // The same with the roles of src and dst exchanged.
    if (dims.size() >= 2 && dims.back().src == 1 && dims.back().dst != 1)
      for (size_t d = 0; d + 1 < dims.size(); ++d)
        if (dims[d].dst == 1) {
          CopyDim dim = dims[d];
          dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(d));
          dims.push_back(dim);
          inner = Inner::Transpose;
          innerDims = 2;
          return;
        }
    if (dims.back().dst == 1 && dims.back().src == 1)
      inner = Inner::Memcpy;
    else if (dims.back().dst == 1 && dims.back().src == 0)
      inner = Inner::Fill;
  }

  void runInner(const T *from, T *to, int64_t begin, int64_t end) const {
    const CopyDim &last = dims.back();
    switch (inner) {
    case Inner::Memcpy:
      std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin) * sizeof(T));
      return;
    case Inner::Fill:
      std::fill(to + begin, to + end, *from);
      return;
    case Inner::Transpose: {
      const CopyDim &rows = dims[dims.size() - 2];
      transpose(from + begin, to + begin * rows.dst, end - begin, last.size, last.src, rows.dst);
      return;
    }
    case Inner::Strided:
      for (int64_t i = begin; i < end; ++i)
        to[i * last.dst] = from[i * last.src];
      return;
    }
  }

  int64_t innerExtent() const { return inner == Inner::Transpose ? dims[dims.size() - 2].size : dims.back().size; }

  void runInnerParallel(const T *from, T *to) const {
    parallelRange(threads, innerExtent(), inner == Inner::Transpose ? 32 : 1024,
                  [&](int64_t begin, int64_t end) { runInner(from, to, begin, end); });
  }

  void runOuter(const T *from, T *to, int64_t begin, int64_t end) const {
    int64_t index[16] = {};
    size_t depth = dims.size() - innerDims;
    int64_t rest = begin, srcAt = 0, dstAt = 0;
    for (size_t d = depth; d-- > 0;) {
      index[d] = rest % dims[d].size;
      rest /= dims[d].size;
      srcAt += index[d] * dims[d].src;
      dstAt += index[d] * dims[d].dst;
    }
    int64_t extent = innerExtent();
    for (int64_t o = begin; o < end; ++o) {
      runInner(from + srcAt, to + dstAt, 0, extent);
      for (size_t d = depth; d-- > 0;) {
        srcAt += dims[d].src;
        dstAt += dims[d].dst;
        if (++index[d] < dims[d].size)
          break;
        srcAt -= dims[d].size * dims[d].src;
        dstAt -= dims[d].size * dims[d].dst;
        index[d] = 0;
      }
    }
  }

  StepOperand src, dst;
  std::vector<CopyDim> dims;
  Inner inner = Inner::Strided;
  size_t innerDims = 1;
  int64_t outer = 1, grain = 1;
  unsigned threads = 1;
  bool empty = false;
};

class FillOp final : public Op {
public:
  FillOp(const plan::Fill &fill, SlotScope &scope, unsigned threads)
      : dst{scope.local(fill.dst())}, element(static_cast<int64_t>(dtypeSize(fill.dtype()))), threads(threads) {
    count = static_cast<int64_t>(scope.slot(fill.dst()).bytes()) / element;
    storeElement(&pattern, 0, fill.dtype(), fill.value());
  }

  void run(SlotTable slots, const RunContext &) override {
    std::byte *to = dst.at(slots);
    parallelRange(count * element < (256 << 10) ? 1 : threads, count, 4096, [&](int64_t begin, int64_t end) {
      if (pattern == 0)
        std::memset(to + begin * element, 0, static_cast<size_t>((end - begin) * element));
      else if (element == 4)
        std::fill(reinterpret_cast<uint32_t *>(to) + begin, reinterpret_cast<uint32_t *>(to) + end,
                  static_cast<uint32_t>(pattern));
      else if (element == 2)
        std::fill(reinterpret_cast<uint16_t *>(to) + begin, reinterpret_cast<uint16_t *>(to) + end,
                  static_cast<uint16_t>(pattern));
      else if (element == 8)
        std::fill(reinterpret_cast<uint64_t *>(to) + begin, reinterpret_cast<uint64_t *>(to) + end, pattern);
      else
        std::memset(to + begin, static_cast<int>(pattern), static_cast<size_t>(end - begin));
    });
  }

private:
  StepOperand dst;
  int64_t element, count = 0;
  uint64_t pattern = 0;
  unsigned threads;
};

} // namespace

std::unique_ptr<Op> makeHostOp(const plan::Copy &op, SlotScope &scope, unsigned threads) {
  switch (dtypeSize(op.dtype())) {
  case 1:
    return std::make_unique<CopyOp<uint8_t>>(op, scope, threads);
  case 2:
    return std::make_unique<CopyOp<uint16_t>>(op, scope, threads);
  case 4:
    return std::make_unique<CopyOp<uint32_t>>(op, scope, threads);
  default:
    return std::make_unique<CopyOp<uint64_t>>(op, scope, threads);
  }
}

std::unique_ptr<Op> makeHostOp(const plan::Fill &op, SlotScope &scope, unsigned threads) {
  return std::make_unique<FillOp>(op, scope, threads);
}

} // namespace cleave
