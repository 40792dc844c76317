// Rows, memory and threads of depthwise convolutions; the loops inside are in DepthwiseKernels.inc.
//
// Each thread computes neighbouring rows of the result. It keeps the rows that their windows cover as floats, with the
// padding beside them, so that the loops know neither types nor edges. Gradients of weights are sums over chunks of
// rows, which are then added in order: how many chunks there are depends on the shape alone.
#include "runtime/device/ConvLoops.h"
#include "runtime/device/DepthwiseKernels.h"
#include "runtime/device/VectorLoops.h"

#include <algorithm>
#include <vector>

namespace cleave {

namespace {

class Depthwise : public ConvLoops<DepthwiseKernels> {
protected:
  Depthwise(const plan::Conv &op, SlotScope &scope, Workspace &workspace, unsigned threads,
            const DepthwiseKernels &kernels)
      : ConvLoops(op, scope, workspace, threads, kernels), back(op.kind() == plan::ConvKind::BackwardData),
        channels(op.ic()), pitch(roundUp(channels, lineFloats)), taps(op.kh() * op.kw()), inH(back ? op.oh() : op.ih()),
        inW(back ? op.ow() : op.iw()), ring(std::min((op.kh() - 1) * op.dilation_h() + 1, inH)) {
    const LineShape down{op.ih(), op.oh(), op.kh(), op.stride_h(), op.dilation_h(), op.pad_top()},
        across{op.iw(), op.ow(), op.kw(), op.stride_w(), op.dilation_w(), op.pad_left()};
    rows = back ? backwardLines(down) : forwardLines(down);
    columns = back ? backwardLines(across) : forwardLines(across);
    rowStep = back ? 1 : op.stride_h(), columnStep = back ? 1 : op.stride_w();
    for (const Line &line : columns)
      for (const int64_t at : line.at) {
        left = std::max(left, -at);
        right = std::max(right, (line.count - 1) * columnStep + at + 1 - inW);
      }
    perRow = (left + inW + right) * pitch;
    rowsAt = reserve(ring * perRow * threads);
    held.resize(static_cast<size_t>(ring * threads));
  }

  void forget() { std::fill(held.begin(), held.end(), -1); }

  /// Row y of image n, from the first pixel of the padding on; null if it lies outside.
  const float *row(unsigned thread, const std::byte *from, int64_t n, int64_t y) {
    if (y < 0 || y >= inH)
      return nullptr;
    const int64_t place = thread * ring + y % ring;
    float *to = scratch(rowsAt + place * perRow);
    if (int64_t &now = held[static_cast<size_t>(place)]; now != n * inH + y) {
      now = n * inH + y;
      std::fill_n(to, left * pitch, 0.f);
      readPixels(from + bytesOf(now * inW * channels), inW, to + left * pitch);
      std::fill_n(to + (left + inW) * pitch, right * pitch, 0.f);
    }
    return to;
  }

  void readPixels(const std::byte *from, int64_t count, float *to) const {
    if (pitch == channels)
      kernels.read[half](from, count * channels, to);
    else
      for (int64_t i = 0; i < count; ++i)
        kernels.read[half](from + bytesOf(i * channels), channels, to + i * pitch);
  }

  bool back;
  int64_t channels, pitch; ///< pitch: floats of a pixel, in whole lines
  int64_t taps, inH, inW;
  int64_t ring;                    ///< rows that a thread keeps: as many as a window covers, at most all of an image
  std::vector<Line> rows, columns; ///< of the result
  int64_t rowStep, columnStep, left = 0, right = 0, perRow;
  int64_t rowsAt;
  std::vector<int64_t> held; ///< which row each place of the rings holds
};

/// Outputs, or gradients of inputs.
class DepthwisePixels final : public Depthwise {
public:
  DepthwisePixels(const plan::Conv &op, SlotScope &scope, Workspace &workspace, unsigned threads,
                  const DepthwiseKernels &kernels)
      : Depthwise(op, scope, workspace, threads, kernels), outH(back ? op.ih() : op.oh()),
        outW(back ? op.iw() : op.ow()), direct(!half && pitch == channels && !op.accumulate()) {
    if (!back && op.bias() >= 0)
      bias = scope.local(static_cast<uint32_t>(op.bias())), hasBias = true;
    plainAt = reserve(taps * channels + lineFloats);
    weightsAt = reserve(taps * pitch);
    startAt = reserve(pitch);
    outAt = reserve(direct ? 0 : outW * pitch * threads);
    lists.resize(static_cast<size_t>(threads * taps));
  }

  void run(SlotTable slots, const RunContext &) override {
    forget();
    float *plain = scratch(plainAt), *turned = scratch(weightsAt), *start = scratch(startAt);
    kernels.read[half](weights.at(slots), taps * channels, plain);
    split(taps, [&](unsigned, int64_t t) {
      for (int64_t c = 0; c < channels; ++c)
        turned[t * pitch + c] = plain[c * taps + t];
      std::fill_n(turned + t * pitch + channels, pitch - channels, 0.f);
    });
    std::fill_n(start, pitch, 0.f);
    if (hasBias)
      kernels.read[half](StepOperand{bias}.at(slots), channels, start);
    const std::byte *from = (back ? dst : src).at(slots);
    std::byte *to = (back ? src : dst).at(slots);
    split(op.n() * outH, [&](unsigned thread, int64_t index) {
      std::byte *result = to + bytesOf(index * outW * channels);
      float *out = direct ? reinterpret_cast<float *>(result) : scratch(outAt + thread * outW * pitch);
      computeRow(thread, from, index / outH, index % outH, out);
      if (direct)
        return;
      if (pitch == channels)
        kernels.write[half](out, outW * channels, op.accumulate(), result);
      else
        for (int64_t x = 0; x < outW; ++x)
          kernels.write[half](out + x * pitch, channels, op.accumulate(), result + bytesOf(x * channels));
    });
  }

private:
  void computeRow(unsigned thread, const std::byte *from, int64_t n, int64_t y, float *out) {
    const auto classes = static_cast<int64_t>(rows.size()), step = static_cast<int64_t>(columns.size());
    const Line &down = rows[static_cast<size_t>(y % classes)];
    DepthwiseTap *list = &lists[static_cast<size_t>(thread * taps)];
    for (const Line &across : columns) {
      int64_t count = 0;
      for (size_t e = 0; e < down.element.size(); ++e)
        if (const float *pixels = row(thread, from, n, y / classes * rowStep + down.at[e]))
          for (size_t i = 0; i < across.element.size(); ++i)
            list[count++] = {pixels + (left + across.at[i]) * pitch,
                             scratch(weightsAt) + (down.element[e] * op.kw() + across.element[i]) * pitch};
      kernels.pixels(list, count, across.count, columnStep * pitch, pitch, scratch(startAt), out + across.first * pitch,
                     step * pitch);
    }
  }

  int64_t outH, outW;
  bool direct; ///< the loops write the result themselves
  bool hasBias = false;
  uint32_t bias = 0;
  int64_t plainAt, weightsAt, startAt, outAt; ///< weights as in the plan and with the channels last
  std::vector<DepthwiseTap> lists;            ///< of each thread
};

class DepthwiseWeights final : public Depthwise {
public:
  DepthwiseWeights(const plan::Conv &op, SlotScope &scope, Workspace &workspace, unsigned threads,
                   const DepthwiseKernels &kernels)
      : Depthwise(op, scope, workspace, threads, kernels), lines(op.n() * op.oh()),
        chunks(std::clamp<int64_t>(lines * std::max<int64_t>(op.ow() / 256, 1) / 8, 1, std::min<int64_t>(lines, 32))),
        rounds(scope.slot(op.weights()).dtype() == plan::DType::BF16), direct(!half && pitch == channels) {
    sumsAt = reserve(chunks * taps * pitch);
    turnedAt = reserve(taps * channels);
    gradientAt = reserve(direct ? 0 : op.ow() * pitch * threads);
  }

  void run(SlotTable slots, const RunContext &) override {
    forget();
    const std::byte *from = src.at(slots), *gradients = dst.at(slots);
    const int64_t perChunk = taps * pitch;
    float *all = scratch(sumsAt), *turned = scratch(turnedAt);
    split(chunks, [&](unsigned thread, int64_t chunk) {
      float *sums = all + chunk * perChunk;
      std::fill_n(sums, perChunk, 0.f);
      for (int64_t line = lines * chunk / chunks; line < lines * (chunk + 1) / chunks; ++line)
        addRow(thread, from, gradients + bytesOf(line * op.ow() * channels), line, sums);
    });
    split(taps, [&](unsigned, int64_t t) {
      for (int64_t chunk = 1; chunk < chunks; ++chunk)
        kernels.write[0](all + chunk * perChunk + t * pitch, pitch, true, all + t * pitch);
      for (int64_t c = 0; c < channels; ++c)
        turned[c * taps + t] = all[t * pitch + c];
    });
    kernels.write[rounds](turned, taps * channels, op.accumulate(), weights.at(slots));
  }

private:
  void addRow(unsigned thread, const std::byte *from, const std::byte *gradients, int64_t line, float *sums) {
    const float *gradient = reinterpret_cast<const float *>(gradients);
    if (!direct) {
      float *to = scratch(gradientAt + thread * op.ow() * pitch);
      readPixels(gradients, op.ow(), to);
      gradient = to;
    }
    for (int64_t e = 0; e < op.kh(); ++e)
      if (const float *pixels = row(thread, from, line / op.oh(), line % op.oh() * op.stride_h() + rows[0].at[e]))
        kernels.weights(pixels + (left + columns[0].at[0]) * pitch, op.kw(), op.dilation_w() * pitch, op.ow(),
                        columnStep * pitch, gradient, pitch, sums + e * op.kw() * pitch);
  }

  int64_t lines, chunks; ///< lines: rows of outputs; a chunk has 8 or more, of long ones fewer
  bool rounds;           ///< the result is bf16
  bool direct;           ///< the loops read the gradients of outputs where they are
  int64_t sumsAt, turnedAt, gradientAt;
};

} // namespace

std::unique_ptr<Op> makeDepthwiseConv(const plan::Conv &op, SlotScope &scope, Workspace &workspace, unsigned threads) {
  const DepthwiseKernels *kernels = loopsFor(scope.plan, depthwiseAvx2, depthwiseAvx512);
  if (!kernels || !op.nhwc() || op.groups() != op.ic() || op.groups() != op.oc() ||
      op.epilogue() != plan::Epilogue::None || !hasLoopTypes(op, scope))
    return nullptr;
  if (op.kind() == plan::ConvKind::BackwardWeights)
    return std::make_unique<DepthwiseWeights>(op, scope, workspace, threads, *kernels);
  return std::make_unique<DepthwisePixels>(op, scope, workspace, threads, *kernels);
}

} // namespace cleave
