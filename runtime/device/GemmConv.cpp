// Pixels, memory and threads of convolutions by the loops of matrix products.
//
// Outputs, and gradients of inputs: the weights are packed into panels, one for each element of the window; rows are
// pixels of the result. With a stride, pixels of the gradient of the inputs form classes that the same elements of the
// window reach. Gradients of weights are products over pixels: each thread packs, for some pixels at a time, gradients
// of its output channels, and multiplies them by panels of inputs that it gathers; of few channels a panel has several
// elements of the window, from copies of whole windows. Sums do not depend on the number of threads.
#include "runtime/device/ConvLoops.h"

#include "runtime/device/GemmKernels.h"
#include "runtime/device/VectorLoops.h"
#include "runtime/plan/DTypes.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

namespace cleave {

namespace {

constexpr int64_t rowsAtATime = 48;
constexpr int64_t unitsAtATime = 512; ///< of pixels, in gradients of weights

/// A loop over the pixels of images, in order.
struct Pixel {
  int64_t n, y, x;
  Pixel(int64_t index, int64_t down, int64_t across)
      : n(index / (down * across)), y(index / across % down), x(index % across), down(down), across(across) {}
  void next() {
    if (++x == across) {
      x = 0;
      if (++y == down)
        y = 0, ++n;
    }
  }

private:
  int64_t down, across;
};

struct Range {
  int64_t begin, end;
};

class GemmConv : public ConvLoops<GemmKernels> {
protected:
  GemmConv(const plan::Conv &op, SlotScope &scope, Workspace &workspace, unsigned threads, const GemmKernels &kernels)
      : ConvLoops(op, scope, workspace, threads, kernels), taps(op.kh() * op.kw()) {}

  int64_t unitsOf(int64_t elements) const { return (elements + kernels.pairs - 1) / kernels.pairs; }

  int64_t taps; ///< elements of the window
};

/// Outputs, or gradients of inputs.
class GemmConvPixels final : public GemmConv {
public:
  GemmConvPixels(const plan::Conv &op, SlotScope &scope, Workspace &workspace, unsigned threads,
                 const GemmKernels &kernels)
      : GemmConv(op, scope, workspace, threads, kernels), back(op.kind() == plan::ConvKind::BackwardData),
        depth(back ? op.oc() : op.ic()), made(back ? op.ic() : op.oc()), inH(back ? op.oh() : op.ih()),
        inW(back ? op.ow() : op.iw()), outH(back ? op.ih() : op.oh()), outW(back ? op.iw() : op.ow()) {
    const LineShape down{op.ih(), op.oh(), op.kh(), op.stride_h(), op.dilation_h(), op.pad_top()},
        across{op.iw(), op.ow(), op.kw(), op.stride_w(), op.dilation_w(), op.pad_left()};
    rows = back ? backwardLines(down) : forwardLines(down);
    columns = back ? backwardLines(across) : forwardLines(across);
    panelFloats = unitsOf(depth) * kernels.panel;
    const int64_t panels = panelsOf(made);
    // With few pixels each thread packs its own panels, which stay in its cache.
    ownPanels = panels % threads == 0 && op.n() * outH * outW <= 1024 * static_cast<int64_t>(threads);
    panelAt = reserve(panels * taps * panelFloats);
    pixelsOfTaps.resize(static_cast<size_t>(threads * taps * rowsAtATime));
    panelsOfTaps.resize(static_cast<size_t>(threads * taps));
    if (!back && op.bias() >= 0) {
      bias = scope.local(static_cast<uint32_t>(op.bias()));
      biasType = scope.slot(static_cast<uint32_t>(op.bias())).dtype();
      shifts.resize(static_cast<size_t>(made));
    }
  }

  void run(SlotTable slots, const RunContext &) override {
    const int64_t panels = panelsOf(made);
    for (size_t i = 0; i < shifts.size(); ++i)
      shifts[i] = static_cast<float>(loadElement(StepOperand{bias}.at(slots), static_cast<int64_t>(i), biasType));
    if (!ownPanels)
      split(panels * taps, [&](unsigned, int64_t index) { pack(slots, index / taps, index % taps); });
    parallelFor(threads, [&](unsigned thread) {
      const int64_t own = ownPanels ? panels / threads : panels, first = ownPanels ? own * thread : 0;
      for (int64_t index = 0; ownPanels && index < own * taps; ++index)
        pack(slots, first + index / taps, index % taps);
      for (const Line &down : rows)
        for (const Line &across : columns) {
          const int64_t count = op.n() * down.count * across.count;
          if (ownPanels)
            multiply(slots, thread, down, across, {0, count}, {first, first + own});
          else
            multiply(slots, thread, down, across, {count * thread / threads, count * (thread + 1) / threads},
                     {0, panels});
        }
    });
  }

private:
  float *panelOf(int64_t panel, int64_t tap) const { return scratch(panelAt) + (panel * taps + tap) * panelFloats; }

  void pack(SlotTable slots, int64_t panel, int64_t tap) const {
    const int64_t first = panel * kernels.panel, perFilter = taps * op.ic();
    const std::byte *from = weights.at(slots) + bytesOf(tap * op.ic() + (back ? first : first * perFilter));
    (back ? kernels.packRows : kernels.packColumns)[half](from, perFilter, depth, widthOf(panel, made),
                                                          panelOf(panel, tap));
  }

  /// Some pixels of a class times some panels.
  void multiply(SlotTable slots, unsigned thread, const Line &down, const Line &across, Range pixels, Range panels) {
    const std::byte *from = (back ? dst : src).at(slots);
    std::byte *to = (back ? src : dst).at(slots);
    const int64_t used = static_cast<int64_t>(down.at.size() * across.at.size()), inStepY = back ? 1 : op.stride_h(),
                  inStepX = back ? 1 : op.stride_w(), outStepY = back ? op.stride_h() : 1,
                  outStepX = back ? op.stride_w() : 1;
    const void **left = pixelsOfTaps.data() + thread * taps * rowsAtATime;
    const float **right = panelsOfTaps.data() + thread * taps;
    void *results[rowsAtATime];
    const int64_t blocks = (pixels.end - pixels.begin + rowsAtATime - 1) / rowsAtATime;
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t begin = pixels.begin + (pixels.end - pixels.begin) * block / blocks,
                    end = pixels.begin + (pixels.end - pixels.begin) * (block + 1) / blocks;
      Pixel pixel(begin, down.count, across.count);
      for (int64_t i = 0; i < end - begin; ++i, pixel.next()) {
        results[i] =
            to +
            bytesOf(((pixel.n * outH + down.first + pixel.y * outStepY) * outW + across.first + pixel.x * outStepX) *
                    made);
        const void **tap = left + i;
        for (const int64_t dy : down.at)
          for (const int64_t dx : across.at) {
            const int64_t y = pixel.y * inStepY + dy, x = pixel.x * inStepX + dx;
            const bool inside = y >= 0 && y < inH && x >= 0 && x < inW;
            *tap = inside ? from + bytesOf(((pixel.n * inH + y) * inW + x) * depth)
                          : reinterpret_cast<const std::byte *>(zeros.data());
            tap += rowsAtATime;
          }
      }
      for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
        const float **tap = right;
        for (const int64_t y : down.element)
          for (const int64_t x : across.element)
            *tap++ = panelOf(panel, y * op.kw() + x);
        const int64_t first = panel * kernels.panel;
        kernels.multiply(end - begin, widthOf(panel, made), used, unitsOf(depth), {left, rowsAtATime, 4}, right,
                         {results, bytesOf(first), half, op.accumulate(),
                          shifts.empty() ? nullptr : &shifts[static_cast<size_t>(first)], nullptr},
                         nullptr, 0);
      }
    }
  }

  bool back, ownPanels;
  int64_t depth, made; ///< channels that are summed over, and that are made
  int64_t inH, inW, outH, outW;
  std::vector<Line> rows, columns; ///< classes are their products
  int64_t panelFloats, panelAt;
  uint32_t bias = 0;
  plan::DType biasType = plan::DType::F32;
  std::vector<float> shifts;               ///< the bias
  std::vector<const void *> pixelsOfTaps;  ///< of each thread [taps][rowsAtATime]
  std::vector<const float *> panelsOfTaps; ///< of each thread [taps]
};

/// Gradients of weights.
class GemmConvWeights final : public GemmConv {
public:
  GemmConvWeights(const plan::Conv &op, SlotScope &scope, Workspace &workspace, unsigned threads,
                  const GemmKernels &kernels)
      : GemmConv(op, scope, workspace, threads, kernels), pixels(op.n() * op.oh() * op.ow()),
        flat(2 * panelsOf(taps * op.ic()) <= taps * panelsOf(op.ic())),
        items(flat ? panelsOf(taps * op.ic()) : taps * panelsOf(op.ic())),
        inPlace(taps == 1 && op.oh() == op.ih() && op.ow() == op.iw() && op.stride_h() == 1 && op.stride_w() == 1),
        ahead(threads) {
    const int64_t units = unitsOf(pixels), blocks = (units + unitsAtATime - 1) / unitsAtATime,
                  all = static_cast<int64_t>(threads);
    blockUnits = std::min(units, roundUp((units + blocks - 1) / blocks, lineFloats));
    panelFloats = blockUnits * kernels.panel;
    // In cycles of a unit, measured with AVX-512: to pack rows and a panel, and to multiply them.
    grid = gridOf(all, [&](int64_t down, int64_t across) {
      const auto rows = static_cast<double>((op.oc() + down - 1) / down),
                 panels = static_cast<double>((items + across - 1) / across);
      return 0.25 * rows + 16 * panels + 2 * rows * panels;
    });
    mostPanels = panelsOf((op.oc() + grid.down - 1) / grid.down);
    leftAt = reserve(mostPanels * panelFloats * all);
    panelAt = reserve(panelFloats * all);
    if (flat)
      flatAt = reserve(blockUnits * kernels.pairs * taps * op.ic() * all);
    pixelsOfTap.resize(static_cast<size_t>(blockUnits * kernels.pairs * all));
  }

  void run(SlotTable slots, const RunContext &) override {
    parallelFor(static_cast<unsigned>(grid.down * grid.across), [&](unsigned thread) {
      const int64_t row = thread / grid.across, column = thread % grid.across, most = blockUnits * kernels.pairs;
      const Range rows{op.oc() * row / grid.down, op.oc() * (row + 1) / grid.down},
          mine{items * column / grid.across, items * (column + 1) / grid.across};
      float *left = scratch(leftAt) + thread * mostPanels * panelFloats;
      for (int64_t begin = 0; begin < pixels; begin += most) {
        const int64_t count = std::min(most, pixels - begin);
        for (int64_t panel = 0; panel < panelsOf(rows.end - rows.begin); ++panel)
          kernels.packRows[half](dst.at(slots) + bytesOf(begin * op.oc() + rows.begin + panel * kernels.panel), op.oc(),
                                 count, widthOf(panel, rows.end - rows.begin), left + panel * panelFloats);
        multiply(slots, thread, begin, count, mine, rows, left);
      }
    });
  }

private:
  /// Adds the products over `count` pixels from `begin` on, for some panels (an element of the window, and some input
  /// channels) and some output channels.
  void multiply(SlotTable slots, unsigned thread, int64_t begin, int64_t count, Range mine, Range rows,
                const float *rowsOfLeft) {
    std::vector<GemmAhead> &next = ahead[thread];
    const std::byte *from = src.at(slots);
    auto *to = reinterpret_cast<float *>(weights.at(slots));
    float *panel = scratch(panelAt) + thread * panelFloats;
    const void **gathered = pixelsOfTap.data() + thread * blockUnits * kernels.pairs;
    const void *left[rowsAtATime];
    void *results[rowsAtATime];
    const int64_t wide = flat ? taps * op.ic() : op.ic(), panels = panelsOf(wide);
    for (int64_t item = mine.begin; item < mine.end; ++item) {
      const int64_t tap = item / panels, first = item % panels * kernels.panel, width = widthOf(item % panels, wide);
      if (flat && item == mine.begin) {
        auto *windows = reinterpret_cast<std::byte *>(scratch(flatAt) + thread * blockUnits * kernels.pairs * wide);
        copyWindows(from, begin, count, windows);
        for (int64_t i = 0; i < count; ++i)
          gathered[i] = windows + bytesOf(i * wide);
      } else if (!flat && (item == mine.begin || item % panels == 0)) {
        const int64_t dy = tap / op.kw() * op.dilation_h() - op.pad_top(),
                      dx = tap % op.kw() * op.dilation_w() - op.pad_left();
        Pixel pixel(begin, op.oh(), op.ow());
        for (int64_t i = 0; i < count; ++i, pixel.next()) {
          const int64_t y = pixel.y * op.stride_h() + dy, x = pixel.x * op.stride_w() + dx;
          const bool inside = y >= 0 && y < op.ih() && x >= 0 && x < op.iw();
          gathered[i] = inside ? from + bytesOf(((pixel.n * op.ih() + y) * op.iw() + x) * op.ic())
                               : reinterpret_cast<const std::byte *>(zeros.data());
        }
      }
      kernels.packGathered[half](gathered, first, count, width, panel);
      next.clear();
      const bool last = item + 1 == mine.end; // then the next block follows
      const int64_t nextItem = last ? mine.begin : item + 1, nextPixel = last ? begin + count : begin;
      if (last && nextPixel < pixels)
        fetch(next, dst.at(slots), nextPixel, op.oc(), rows);
      if (inPlace && nextPixel < pixels) // items are panels
        fetch(next, from, nextPixel, op.ic(),
              {nextItem * kernels.panel, std::min((nextItem + 1) * kernels.panel, op.ic())});
      size_t fetched = 0;
      for (int64_t row = rows.begin; row < rows.end; row += rowsAtATime) {
        const int64_t some = std::min(rowsAtATime, rows.end - row);
        for (int64_t i = 0; i < some; ++i) {
          left[i] = rowsOfLeft + (row - rows.begin + i) / kernels.panel * panelFloats +
                    (row - rows.begin + i) % kernels.panel;
          results[i] = to + ((row + i) * taps + tap) * op.ic() + first;
        }
        const float *right = panel;
        kernels.multiply(some, width, 1, unitsOf(count), {left, 0, kernels.panel * 4}, &right,
                         {results, 0, false, op.accumulate() || begin > 0, nullptr, nullptr}, next.data() + fetched,
                         static_cast<int64_t>(next.size() - fetched));
        fetched = std::min(next.size(), fetched + static_cast<size_t>((some + kernels.rows - 1) / kernels.rows));
      }
    }
  }

  /// Copies what the windows of `count` pixels from `begin` on cover, one window after another.
  void copyWindows(const std::byte *from, int64_t begin, int64_t count, std::byte *to) const {
    const auto channels = static_cast<size_t>(bytesOf(op.ic()));
    Pixel pixel(begin, op.oh(), op.ow());
    for (int64_t i = 0; i < count; ++i, pixel.next()) {
      const int64_t left = pixel.x * op.stride_w() - op.pad_left();
      const bool whole = op.dilation_w() == 1 && left >= 0 && left + op.kw() <= op.iw();
      const int64_t run = whole ? op.kw() : 1; // elements of the window that are neighbours
      const size_t bytes = channels * static_cast<size_t>(run);
      for (int64_t tap = 0; tap < taps; tap += run, to += bytes) {
        const int64_t y = pixel.y * op.stride_h() + tap / op.kw() * op.dilation_h() - op.pad_top(),
                      x = left + tap % op.kw() * op.dilation_w();
        if (y >= 0 && y < op.ih() && x >= 0 && x < op.iw())
          std::memcpy(to, from + bytesOf(((pixel.n * op.ih() + y) * op.iw() + x) * op.ic()), bytes);
        else
          std::memset(to, 0, bytes);
      }
    }
  }

  /// Adds the lines of some channels of pixels from `pixel` on.
  void fetch(std::vector<GemmAhead> &list, const std::byte *from, int64_t pixel, int64_t channels, Range some) const {
    for (int64_t i = 0; i < kernels.pairs; ++i)
      for (int64_t byte = bytesOf(some.begin); byte < bytesOf(some.end); byte += 64)
        list.push_back({from + bytesOf((pixel + i) * channels) + byte, bytesOf(kernels.pairs * channels)});
  }

  int64_t pixels;
  bool flat;     ///< with few channels panels hold several elements of the window
  int64_t items; ///< panels of all elements of the window
  bool inPlace;  ///< a pixel's inputs are where its outputs are
  int64_t blockUnits, panelFloats;
  Grid grid;          ///< parts of the output channels, parts of the items
  int64_t mostPanels; ///< of the output channels of a thread
  int64_t leftAt, panelAt, flatAt = 0;
  std::vector<const void *> pixelsOfTap;     ///< of each thread, in a block
  std::vector<std::vector<GemmAhead>> ahead; ///< what each thread reads next
};

} // namespace

std::unique_ptr<Op> makeGemmConv(const plan::Conv &op, SlotScope &scope, Workspace &workspace, unsigned threads) {
  const plan::DType type = scope.slot(op.src()).dtype(), weights = scope.slot(op.weights()).dtype();
  const bool half = type == plan::DType::BF16, gradient = op.kind() == plan::ConvKind::BackwardWeights;
  const GemmKernels *kernels = loopsFor(scope.plan, half, gemmAvx2, gemmAvx512, gemmBf16);
  if (!kernels || !op.nhwc() || op.groups() != 1 || op.epilogue() != plan::Epilogue::None ||
      (!half && type != plan::DType::F32) || scope.slot(op.dst()).dtype() != type ||
      weights != (gradient ? plan::DType::F32 : type))
    return nullptr;
  // Rows of pixels are read where they are: bf16 numbers as pairs.
  const int64_t depth = op.kind() == plan::ConvKind::Forward ? op.ic() : op.oc();
  if (half && (kernels->pairs != 2 || (!gradient && depth % 2)))
    return nullptr;
  if (gradient)
    return std::make_unique<GemmConvWeights>(op, scope, workspace, threads, *kernels);
  return std::make_unique<GemmConvPixels>(op, scope, workspace, threads, *kernels);
}

} // namespace cleave
