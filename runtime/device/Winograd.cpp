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
#include <vector>

namespace cleave {

namespace {

constexpr int64_t positions = 36;

/// The tiles of a convolution from [n, h, w, ...] to [n, outH, outW, ...].
struct Tiles {
  int64_t n, h, w, outH, outW, top, left; ///< top, left: rows and columns of padding
  int64_t side;                           ///< rows and columns of outputs of a tile

  int64_t down() const { return (outH + side - 1) / side; }
  int64_t across() const { return (outW + side - 1) / side; }
  int64_t count() const { return n * down() * across(); }

  /// The elements of the tile of 6x6 inputs, `bytes` long with all their channels; outside they are `zeros`.
  std::array<const void *, 36> inputs(int64_t tile, const std::byte *from, int64_t bytes, const void *zeros) const {
    std::array<const void *, 36> result;
    const int64_t image = tile / (down() * across()), y0 = tile / across() % down() * side - top,
                  x0 = tile % across() * side - left;
    for (int64_t y = 0; y < 6; ++y)
      for (int64_t x = 0; x < 6; ++x) {
        const bool inside = y0 + y >= 0 && y0 + y < h && x0 + x >= 0 && x0 + x < w;
        result[6 * y + x] = inside ? from + ((image * h + y0 + y) * w + x0 + x) * bytes : zeros;
      }
    return result;
  }

  /// The elements of the tile of outputs, `bytes` long; outside they are `none`.
  template <typename Byte, typename Void>
  std::array<Void *, 16> outputs(int64_t tile, Byte *to, int64_t bytes, Void *none) const {
    std::array<Void *, 16> result;
    const int64_t image = tile / (down() * across()), y0 = tile / across() % down() * side, x0 = tile % across() * side;
    for (int64_t y = 0; y < side; ++y)
      for (int64_t x = 0; x < side; ++x)
        result[side * y + x] =
            y0 + y < outH && x0 + x < outW ? to + ((image * outH + y0 + y) * outW + x0 + x) * bytes : none;
    return result;
  }
};

class WinogradOp : public ConvLoops<WinogradKernels> {
protected:
  WinogradOp(const plan::Conv &op, SlotScope &scope, Workspace &workspace, unsigned threads,
             const WinogradKernels &kernels)
      : ConvLoops(op, scope, workspace, threads, kernels),
        window((op.kh() == 3 ? kernels.window3 : kernels.window5)[half]) {}

  const WinogradWindow &window;
};

/// Outputs, or gradients of inputs: a convolution of the gradients of outputs with the windows turned around.
class WinogradForward final : public WinogradOp {
public:
  WinogradForward(const plan::Conv &op, SlotScope &scope, Workspace &workspace, unsigned threads,
                  const WinogradKernels &kernels)
      : WinogradOp(op, scope, workspace, threads, kernels), back(op.kind() == plan::ConvKind::BackwardData),
        depth(back ? op.oc() : op.ic()), made(back ? op.ic() : op.oc()),
        tiles(back ? Tiles{op.n(), op.oh(), op.ow(), op.ih(), op.iw(), op.kh() - 1 - op.pad_top(),
                           op.kw() - 1 - op.pad_left(), window.outputs}
                   : Tiles{op.n(), op.ih(), op.iw(), op.oh(), op.ow(), op.pad_top(), op.pad_left(), window.outputs}),
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

/// Gradients of weights.
class WinogradWeights final : public WinogradOp {
public:
  WinogradWeights(const plan::Conv &op, SlotScope &scope, Workspace &workspace, unsigned threads,
                  const WinogradKernels &kernels)
      : WinogradOp(op, scope, workspace, threads, kernels), tiles{op.n(),        op.ih(),       op.iw(),
                                                                  op.oh(),       op.ow(),       op.pad_top(),
                                                                  op.pad_left(), window.outputs} {
    constexpr int64_t chunkBytes = 8 << 20; // of transformed tiles, which stay in the last cache (measured)
    chunk = std::clamp<int64_t>(chunkBytes / (positions * 4 * (op.ic() + op.oc())) / lineFloats * lineFloats, 32, 512);
    chunk = std::min(chunk, tiles.count());
    perInput = chunk * roundUp(op.ic(), kernels.panel) + lineFloats;
    perGradient = chunk * op.oc() + lineFloats;
    perProduct = rowsAtATime * kernels.panel + lineFloats;
    inputAt = reserve(positions * perInput);
    gradientAt = reserve(positions * perGradient);
    productAt = reserve(positions * perProduct * threads);
    rounds = scope.slot(op.weights()).dtype() == plan::DType::BF16;
    if (rounds)
      sumAt = reserve(op.oc() * perChannel());
  }

  void run(SlotTable slots, const RunContext &) override {
    const std::byte *from = src.at(slots), *gradients = dst.at(slots);
    std::byte *result = weights.at(slots);
    float *to = rounds ? scratch(sumAt) : reinterpret_cast<float *>(result);
    float *input = scratch(inputAt), *gradient = scratch(gradientAt);
    const int64_t count = tiles.count(), blocks = (op.oc() + rowsAtATime - 1) / rowsAtATime,
                  units = panelsOf(op.ic()) * blocks;
    for (int64_t begin = 0; begin < count; begin += chunk) {
      const int64_t rows = std::min(chunk, count - begin);
      split(rows, [&](unsigned, int64_t row) {
        const void *none = zeros.data();
        window.transformInput(tiles.inputs(begin + row, from, bytesOf(op.ic()), none).data(), op.ic(),
                              {input, perInput, kernels.panel, chunk * kernels.panel}, row);
        window.transformGradient(tiles.outputs(begin + row, gradients, bytesOf(op.oc()), none).data(), op.oc(),
                                 {gradient, perGradient, op.oc(), kernels.panel}, row);
      });
      split(units, [&](unsigned thread, int64_t unit) {
        multiply(thread, unit / blocks, unit % blocks * rowsAtATime, rows, (op.accumulate() && !rounds) || begin > 0,
                 to);
      });
    }
    if (rounds)
      split(op.oc(), [&](unsigned, int64_t channel) {
        window.write(to + channel * perChannel(), perChannel(), op.accumulate(),
                     result + bytesOf(channel * perChannel()));
      });
  }

private:
  static constexpr int64_t rowsAtATime = 64; ///< channels of outputs
  int64_t perChannel() const { return window.size * window.size * op.ic(); }

  /// Adds the sums over the chunk's tiles for a panel of input channels and some output channels.
  void multiply(unsigned thread, int64_t panel, int64_t first, int64_t depth, bool add, float *to) const {
    const int64_t width = widthOf(panel, op.ic()), rows = std::min(rowsAtATime, op.oc() - first);
    const float *left = scratch(gradientAt) + first, *right = scratch(inputAt) + panel * chunk * kernels.panel;
    float *product = scratch(productAt + thread * positions * perProduct);
    for (int64_t p = 0; p < positions; ++p)
      kernels.multiplyTransposed(rows, depth, left + p * perGradient, op.oc(), right + p * perInput, width,
                                 product + p * perProduct);
    for (int64_t row = 0; row < rows; ++row)
      window.transformFilter(product + row * width, perProduct, width, add,
                             to + (first + row) * window.size * window.size * op.ic() + panel * kernels.panel, op.ic());
  }

  Tiles tiles;
  int64_t chunk; ///< tiles that are transformed at a time
  int64_t perInput, perGradient, perProduct;
  int64_t inputAt, gradientAt, productAt;
  bool rounds;       ///< the result is bf16: the sums of all chunks are made in f32 first
  int64_t sumAt = 0; ///< of these sums
};

/// Whether all operands are f32, or all bf16; gradients of weights may be f32.
bool hasTypes(const plan::Conv &op, SlotScope &scope) {
  const plan::DType type = scope.slot(op.src()).dtype(), weights = scope.slot(op.weights()).dtype();
  return (type == plan::DType::F32 || type == plan::DType::BF16) && scope.slot(op.dst()).dtype() == type &&
         (weights == type || (weights == plan::DType::F32 && op.kind() == plan::ConvKind::BackwardWeights)) &&
         (op.bias() < 0 || scope.slot(static_cast<uint32_t>(op.bias())).dtype() == type);
}

} // namespace

std::unique_ptr<Op> makeWinogradConv(const plan::Conv &op, SlotScope &scope, Workspace &workspace, unsigned threads) {
  const WinogradKernels *kernels = loopsFor(scope.plan, winogradAvx2, winogradAvx512);
  if (!kernels || !op.nhwc() || op.ic() % lineFloats || op.oc() % lineFloats || op.epilogue() != plan::Epilogue::None ||
      !hasTypes(op, scope))
    return nullptr;
  if (op.kind() == plan::ConvKind::BackwardWeights)
    return std::make_unique<WinogradWeights>(op, scope, workspace, threads, *kernels);
  return std::make_unique<WinogradForward>(op, scope, workspace, threads, *kernels);
}

} // namespace cleave
