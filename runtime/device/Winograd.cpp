// Tiles, memory and threads of convolutions by Winograd's method; the loops inside are in WinogradKernels.inc.
//
// A convolution is 36 matrix products of transformed tiles [tiles][channels] and transformed weights. The smaller of
// the two matrices is transformed as a whole first and shared by the threads; each thread transforms a part of the
// other one and multiplies it while it is in its cache. Gradients of weights sum over tiles: chunks of tiles are
// transformed by all threads, then each thread multiplies and sums its own part of the weights. What is summed, and in
// which order, does not depend on the number of threads.
#include "runtime/device/ConvLoops.h"

#include "runtime/device/VectorLoops.h"
#include "runtime/device/WinogradKernels.h"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

namespace cleave {

namespace {

constexpr int64_t positions = 36;

/// A dimension of a convolution's pixels. Windows with a dilation of d read every d-th pixel: the outputs are those of
/// d convolutions without dilation, each of which has tiles of its own.
struct TileLine {
  int64_t in, out, padding, dilation;
  int64_t side; ///< outputs of a tile

  int64_t count() const { return std::min(dilation, out) * ofOne(); }
  /// The pixels of a tile's inputs, and of its outputs; -1 outside.
  std::array<int64_t, 6> inputs(int64_t tile) const { return pixels(first(tile) - padding, in, 6); }
  std::array<int64_t, 6> outputs(int64_t tile) const { return pixels(first(tile), out, side); }

private:
  int64_t ofOne() const { return (out + dilation * side - 1) / (dilation * side); }
  int64_t first(int64_t tile) const { return tile / ofOne() + tile % ofOne() * side * dilation; }
  std::array<int64_t, 6> pixels(int64_t begin, int64_t all, int64_t some) const {
    std::array<int64_t, 6> result;
    for (int64_t i = 0, pixel = begin; i < some; ++i, pixel += dilation)
      result[i] = pixel >= 0 && pixel < all ? pixel : -1;
    return result;
  }
};

/// The tiles of a convolution of `n` images.
struct Tiles {
  int64_t n;
  TileLine down, across;

  int64_t count() const { return n * down.count() * across.count(); }

  /// The elements of the tile of 6x6 inputs, `bytes` long with all their channels; outside they are `zeros`.
  std::array<const void *, 36> inputs(int64_t tile, const std::byte *from, int64_t bytes, const void *zeros) const {
    std::array<const void *, 36> result;
    const auto rows = down.inputs(rowOf(tile)), columns = across.inputs(columnOf(tile));
    for (int64_t y = 0; y < 6; ++y)
      for (int64_t x = 0; x < 6; ++x)
        result[6 * y + x] = rows[y] >= 0 && columns[x] >= 0
                                ? from + ((imageOf(tile) * down.in + rows[y]) * across.in + columns[x]) * bytes
                                : zeros;
    return result;
  }

  /// The elements of the tile of outputs, `bytes` long; outside they are `none`.
  template <typename Byte, typename Void>
  std::array<Void *, 16> outputs(int64_t tile, Byte *to, int64_t bytes, Void *none) const {
    std::array<Void *, 16> result;
    const int64_t side = down.side;
    const auto rows = down.outputs(rowOf(tile)), columns = across.outputs(columnOf(tile));
    for (int64_t y = 0; y < side; ++y)
      for (int64_t x = 0; x < side; ++x)
        result[side * y + x] = rows[y] >= 0 && columns[x] >= 0
                                   ? to + ((imageOf(tile) * down.out + rows[y]) * across.out + columns[x]) * bytes
                                   : none;
    return result;
  }

private:
  int64_t imageOf(int64_t tile) const { return tile / (down.count() * across.count()); }
  int64_t rowOf(int64_t tile) const { return tile / across.count() % down.count(); }
  int64_t columnOf(int64_t tile) const { return tile % across.count(); }
};

class WinogradOp : public ConvLoops<WinogradKernels> {
protected:
  WinogradOp(const plan::Conv &op, SlotScope &scope, Workspace &workspace, unsigned threads,
             const WinogradKernels &kernels)
      : ConvLoops(op, scope, workspace, threads, kernels),
        window((op.kh() == 3 ? kernels.window3 : kernels.window5)[half]) {}

  /// The tiles of outputs, or of inputs if `back`.
  Tiles tilesOf(bool back) const {
    const auto line = [&](int64_t in, int64_t out, int64_t padding, int64_t dilation) {
      return back ? TileLine{out, in, (window.size - 1) * dilation - padding, dilation, window.outputs}
                  : TileLine{in, out, padding, dilation, window.outputs};
    };
    return {op.n(), line(op.ih(), op.oh(), op.pad_top(), op.dilation_h()),
            line(op.iw(), op.ow(), op.pad_left(), op.dilation_w())};
  }

  const WinogradWindow &window;
};

/// Outputs, or gradients of inputs: a convolution of the gradients of outputs with the windows turned around.
class WinogradForward final : public WinogradOp {
public:
  WinogradForward(const plan::Conv &op, SlotScope &scope, Workspace &workspace, unsigned threads,
                  const WinogradKernels &kernels)
      : WinogradOp(op, scope, workspace, threads, kernels), back(op.kind() == plan::ConvKind::BackwardData),
        depth(back ? op.oc() : op.ic()), made(back ? op.ic() : op.oc()), tiles(tilesOf(back)),
        sharesWeights(tiles.count() > made), chunk((sharesWeights ? 48 : 120) / kernels.rows * kernels.rows) {
    if (!back && op.bias() >= 0)
      bias = scope.local(static_cast<uint32_t>(op.bias())), hasBias = true;
    const int64_t rows = sharesWeights ? chunk : roundUp(tiles.count(), kernels.rows);
    perPosition = rows * depth + lineFloats;
    perProduct = chunk * kernels.panel + lineFloats;
    oneInput = positions * perPosition;
    onePanel = positions * depth * kernels.panel;
    oneProduct = positions * perProduct;
    inputAt = reserve(oneInput * (sharesWeights ? threads : 1));
    panelAt = reserve(onePanel * (sharesWeights ? panelsOf(made) : threads));
    productAt = reserve(oneProduct * threads);
  }

  void run(SlotTable slots, const RunContext &) override {
    const std::byte *from = (back ? dst : src).at(slots), *w = weights.at(slots);
    std::byte *to = (back ? src : dst).at(slots);
    const int64_t panels = panelsOf(made), count = tiles.count(), chunks = (count + chunk - 1) / chunk;
    if (sharesWeights) {
      split(panels, [&](unsigned, int64_t panel) { transformWeights(panel, w, scratch(panelAt + panel * onePanel)); });
      split(chunks, [&](unsigned thread, int64_t index) {
        const int64_t begin = index * chunk, end = std::min(count, begin + chunk);
        float *input = scratch(inputAt + thread * oneInput);
        for (int64_t tile = begin; tile < end; ++tile)
          transformInput(from, tile, input, tile - begin);
        for (int64_t panel = 0; panel < panels; ++panel)
          multiply(thread, panel, begin, end, input, scratch(panelAt + panel * onePanel), slots, to);
      });
    } else {
      float *input = scratch(inputAt);
      split(count, [&](unsigned, int64_t tile) { transformInput(from, tile, input, tile); });
      split(panels, [&](unsigned thread, int64_t panel) {
        float *own = scratch(panelAt + thread * onePanel);
        transformWeights(panel, w, own);
        for (int64_t begin = 0; begin < count; begin += chunk)
          multiply(thread, panel, begin, std::min(count, begin + chunk), input + begin * depth, own, slots, to);
      });
    }
  }

private:
  void transformInput(const std::byte *from, int64_t tile, float *input, int64_t row) const {
    window.transformInput(tiles.inputs(tile, from, bytesOf(depth), zeros.data()).data(), depth,
                          {input, perPosition, depth, kernels.panel}, row);
  }

  /// [36][depth][width] of a panel of the weights, whose neighbours in memory are channels of inputs.
  void transformWeights(int64_t panel, const std::byte *w, float *to) const {
    const int64_t first = panel * kernels.panel;
    window.transformWeights(w + bytesOf(back ? first : first * window.size * window.size * op.ic()), op.ic(), depth,
                            widthOf(panel, made), !back, to);
  }

  /// Tiles begin ... end - 1, whose rows are at `input`, times a panel of the weights.
  void multiply(unsigned thread, int64_t panel, int64_t begin, int64_t end, const float *input, const float *right,
                SlotTable slots, std::byte *to) const {
    const int64_t first = panel * kernels.panel, width = widthOf(panel, made),
                  rows = roundUp(end - begin, kernels.rows);
    float *product = scratch(productAt + thread * oneProduct);
    for (int64_t p = 0; p < positions; ++p)
      kernels.multiply(rows, depth, input + p * perPosition, depth, right + p * depth * width, width,
                       product + p * perProduct);
    const void *shift = hasBias ? StepOperand{bias}.at(slots) + bytesOf(first) : nullptr;
    for (int64_t tile = begin; tile < end; ++tile)
      window.transformOutput(
          product + (tile - begin) * width, perProduct, width, shift, op.accumulate(),
          tiles.outputs(tile, to + bytesOf(first), bytesOf(made), static_cast<void *>(nullptr)).data());
  }

  bool back, hasBias = false;
  int64_t depth, made; ///< channels that are summed over, and that are made
  Tiles tiles;
  bool sharesWeights; ///< all weights are transformed first, otherwise all tiles
  int64_t chunk;      ///< tiles that a thread multiplies at a time (measured)
  uint32_t bias = 0;
  int64_t perPosition, perProduct;        ///< floats from one of the 36 matrices to the next
  int64_t oneInput, onePanel, oneProduct; ///< floats of each kind of part
  int64_t inputAt, panelAt, productAt;
};

/// Gradients of weights. Rows of the 6x6 positions, and parts of the output channels, are shared among threads, each of
/// which transforms some tiles at a time and adds their products to its sums.
class WinogradWeights final : public WinogradOp {
public:
  WinogradWeights(const plan::Conv &op, SlotScope &scope, Workspace &workspace, unsigned threads,
                  const WinogradKernels &kernels)
      : WinogradOp(op, scope, workspace, threads, kernels), tiles(tilesOf(false)),
        columns(panelsOf(op.ic()) * kernels.panel) {
    const int64_t all = threads, vectors = op.oc() / lineFloats;
    // About the cycles of a tile with AVX-512: to multiply rows of positions, and to transform both operands.
    const Grid grid = gridOf(all, [&](int64_t down, int64_t across) {
      const int64_t some = std::min(across, vectors);
      const auto ic = static_cast<double>(op.ic()), oc = static_cast<double>((vectors + some - 1) / some * lineFloats);
      const double cost = (0.19 * oc * ic + 1.7 * ic + 1.3 * oc) / static_cast<double>(down);
      return 6 % down ? std::numeric_limits<double>::infinity() : cost;
    });
    groups = grid.down, parts = std::min(grid.across, vectors);
    // Sums of as many output channels at a time as take 10 MB.
    const int64_t passes = (positions * columns * op.oc() * 4 + sumBytes - 1) / sumBytes;
    channels = roundUp((op.oc() + passes - 1) / passes, lineFloats);
    const int64_t part = roundUp((channels + parts - 1) / parts, lineFloats);
    chunk = std::clamp<int64_t>(chunkBytes / (6 * 4 * (columns + channels)), 32, 512);
    chunk = std::min(chunk, tiles.count());
    perInput = chunk * columns + lineFloats;
    perGradient = chunk * part + lineFloats;
    perProduct = channels * columns + lineFloats;
    inputAt = reserve(6 * perInput * all);
    gradientAt = reserve(6 * perGradient * all);
    productAt = reserve(positions * perProduct);
    inputs.resize(static_cast<size_t>(chunk * all));
    gradients.resize(static_cast<size_t>(chunk * all));
    rounds = scope.slot(op.weights()).dtype() == plan::DType::BF16;
    if (rounds)
      sumAt = reserve(op.oc() * perChannel());
  }

  void run(SlotTable slots, const RunContext &) override {
    std::byte *result = weights.at(slots);
    float *to = rounds ? scratch(sumAt) : reinterpret_cast<float *>(result);
    for (int64_t first = 0; first < op.oc(); first += channels) {
      const int64_t count = std::min(channels, op.oc() - first), vectors = count / lineFloats;
      parallelFor(static_cast<unsigned>(groups * parts), [&](unsigned thread) {
        const int64_t part = thread / groups, begin = vectors * part / parts * lineFloats,
                      end = vectors * (part + 1) / parts * lineFloats;
        sum(slots, thread, thread % groups, first, begin, end);
      });
      split(count, [&](unsigned, int64_t row) {
        for (int64_t panel = 0; panel < panelsOf(op.ic()); ++panel)
          window.transformFilter(scratch(productAt) + row * columns + panel * kernels.panel, perProduct,
                                 widthOf(panel, op.ic()), op.accumulate() && !rounds,
                                 to + (first + row) * perChannel() + panel * kernels.panel, op.ic());
      });
    }
    if (rounds)
      split(op.oc(), [&](unsigned, int64_t channel) {
        window.write(to + channel * perChannel(), perChannel(), op.accumulate(),
                     result + bytesOf(channel * perChannel()));
      });
  }

private:
  int64_t perChannel() const { return window.size * window.size * op.ic(); }

  /// The sums over all tiles, for some rows of positions, of output channels `begin` ... `end` - 1 of those that begin
  /// with `first`.
  void sum(SlotTable slots, unsigned thread, int64_t group, int64_t first, int64_t begin, int64_t end) {
    const int64_t rows = 6 / groups, part = end - begin;
    float *input = scratch(inputAt + int64_t{6} * thread * perInput),
          *gradient = scratch(gradientAt + int64_t{6} * thread * perGradient);
    const TileMatrix inputTo{input, perInput, kernels.panel, chunk * kernels.panel},
        gradientTo{gradient, perGradient, part, kernels.panel};
    auto *const from = &inputs[static_cast<size_t>(thread * chunk)];
    auto *const gradientFrom = &gradients[static_cast<size_t>(thread * chunk)];
    for (int64_t tile = 0; tile < tiles.count(); tile += chunk) {
      const int64_t count = std::min(chunk, tiles.count() - tile);
      for (int64_t i = 0; i < count; ++i) {
        from[i] = tiles.inputs(tile + i, src.at(slots), bytesOf(op.ic()), zeros.data());
        gradientFrom[i] =
            tiles.outputs(tile + i, static_cast<const std::byte *>(dst.at(slots)) + bytesOf(first + begin),
                          bytesOf(op.oc()), static_cast<const void *>(zeros.data()));
      }
      for (int64_t row = group * rows; row < (group + 1) * rows; ++row) {
        for (int64_t i = 0; i < count; ++i)
          window.transformInputRow[row](from[i].data(), op.ic(), inputTo, i);
        for (int64_t i = 0; i < count; ++i)
          window.transformGradientRow[row](gradientFrom[i].data(), part, gradientTo, i);
        for (int64_t x = 0; x < 6; ++x)
          for (int64_t panel = 0; panel < panelsOf(op.ic()); ++panel)
            kernels.multiplyTransposed(
                part, count, gradient + x * perGradient, part, input + x * perInput + panel * chunk * kernels.panel,
                widthOf(panel, op.ic()), tile > 0,
                scratch(productAt) + (row * 6 + x) * perProduct + begin * columns + panel * kernels.panel, columns);
      }
    }
  }

  static constexpr int64_t sumBytes = 10 << 20;    ///< of the sums of all positions, at most
  static constexpr int64_t chunkBytes = 256 << 10; ///< of tiles of a row of positions (measured)
  Tiles tiles;
  int64_t columns;       ///< of the sums: input channels in whole panels
  int64_t groups, parts; ///< of the rows of positions, and of the output channels
  int64_t channels;      ///< output channels that are summed at a time
  int64_t chunk;         ///< tiles that a thread transforms at a time
  int64_t perInput, perGradient, perProduct;
  int64_t inputAt, gradientAt, productAt;
  std::vector<std::array<const void *, 36>> inputs;    ///< elements of the tiles of each thread's chunk
  std::vector<std::array<const void *, 16>> gradients; ///< of the outputs
  bool rounds;       ///< the result is bf16: the sums of all chunks are made in f32 first
  int64_t sumAt = 0; ///< of these sums
};

} // namespace

std::unique_ptr<Op> makeWinogradConv(const plan::Conv &op, SlotScope &scope, Workspace &workspace, unsigned threads) {
  const WinogradKernels *kernels = loopsFor(scope.plan, winogradAvx2, winogradAvx512);
  if (!kernels || !op.nhwc() || op.ic() % lineFloats || op.oc() % lineFloats || op.epilogue() != plan::Epilogue::None ||
      !hasLoopTypes(op, scope))
    return nullptr;
  if (op.kind() == plan::ConvKind::BackwardWeights)
    return std::make_unique<WinogradWeights>(op, scope, workspace, threads, *kernels);
  return std::make_unique<WinogradForward>(op, scope, workspace, threads, *kernels);
}

} // namespace cleave
