// The roofline of every class of step.
#include "partitioner/cost/StepCost.h"

#include "runtime/base/Error.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

namespace cleave::partitioner {

static double ceilDivide(double a, double b) { return std::ceil(a / b); }

/// The shortest time over all tiles and all numbers of cuts of the sum, in units of one operation at the full rate of
/// all multiprocessors.
static double tiledOperations(int64_t m, int64_t n, int64_t k, int64_t batch, Rate rate, const DeviceConstants &c) {
  const auto rows = static_cast<double>(m), columns = static_cast<double>(n), depth = static_cast<double>(k);
  const double fill = c.fillDepth[static_cast<size_t>(rate)], processors = static_cast<double>(c.multiprocessors);
  double best = INFINITY;
  for (const Tile &tile : rate == Rate::Fp32 ? c.fp32Tiles : c.halfTiles) {
    const auto height = static_cast<double>(tile.rows), width = static_cast<double>(tile.columns);
    const double tiles = ceilDivide(rows, height) * ceilDivide(columns, width) * static_cast<double>(batch);
    for (double cuts = 1; cuts <= 64; cuts *= 2) {
      const double waves = ceilDivide(tiles * cuts, processors);
      best = std::min(best, waves * processors * 2 * height * width * (depth / cuts + fill) / tile.efficiency);
      if (tiles * cuts >= 4 * processors || depth / cuts < 2 * fill) // more cuts cannot help
        break;
    }
  }
  return best;
}

double tiledFraction(int64_t m, int64_t n, int64_t k, int64_t batch, Rate rate, const DeviceConstants &constants) {
  const double operations =
      2 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) * static_cast<double>(batch);
  return operations / tiledOperations(m, n, k, batch, rate, constants);
}

namespace {

class Roofline {
public:
  Roofline(const StepWork &work, const CostDevice &device) : work(work), kind(device.kind), c(device.constants) {}

  StepCost cost() const {
    if (work.kind == WorkClass::None)
      return {};
    StepCost cost;
    cost.launch = c.launchSeconds * static_cast<double>(work.kernels);
    cost.memory = moving(work.bytes, work.kind);
    if (work.kind == WorkClass::Product)
      cost.compute = multiply(c.productFraction, c.halfSize);
    else if (work.kind == WorkClass::Convolution)
      cost.compute = multiply(c.convolutionFraction, c.convolutionHalfSize) /
                     (work.winograd && work.rate == Rate::Fp32 ? c.winogradGain : 1);
    else if (work.kind == WorkClass::Stream)
      cost.compute = work.functions * c.functionSeconds;
    else if (work.kind == WorkClass::Attention)
      return attention(cost);
    return cost;
  }

private:
  double peak() const {
    if (!kind.has(work.rate))
      throw userError(fmt::format("device {} of the cluster has no peak_tflops.{}, which the plan's products need",
                                  kind.name, rateName(work.rate)));
    return kind.peak(work.rate);
  }

  double moving(double bytes, WorkClass by) const {
    const double cached = kind.cache ? kind.cache->bytes() : c.cacheBytes, memory = kind.memoryBytesPerSecond();
    const double fast = kind.cache ? std::max(memory, kind.cache->bytesPerSecond()) : memory * c.cacheSpeed;
    return bytes / ((bytes <= cached / 2 ? fast : memory) * c.memoryFraction[static_cast<size_t>(by)]);
  }

  double multiply(const std::array<double, rateCount> &fraction, double halfSize) const {
    const double rate = peak() * fraction[static_cast<size_t>(work.rate)];
    if (work.m <= 0 || work.n <= 0 || work.k <= 0 || work.batch <= 0)
      return 0;
    if (c.multiprocessors > 0)
      return std::max(work.flops, tiledOperations(work.m, work.n, work.k, work.batch, work.rate, c) /
                                      c.boost[static_cast<size_t>(work.rate)]) /
             rate;
    const auto reached = [&](int64_t size) {
      return static_cast<double>(size) / (static_cast<double>(size) + halfSize);
    };
    return work.flops / (rate * reached(work.m) * reached(work.n) * reached(work.k));
  }

  StepCost attention(StepCost cost) const {
    if (attentionIsFused(kind)) {
      cost.compute = work.flops / (peak() * (work.backward ? c.attentionBackward : c.attentionForward));
      return cost;
    }
    // Products of all rows and keys, and passes over the scores: the softmax, or its gradient, which reads two
    // matrices.
    StepWork one = work;
    one.kind = WorkClass::Product;
    const int products = work.backward ? 4 : 2;
    one.flops = 2 * static_cast<double>(one.m) * static_cast<double>(one.n) * static_cast<double>(one.k) *
                static_cast<double>(one.batch);
    one.bytes = work.bytes / products + work.scoreBytes;
    const StepCost each = Roofline(one, kind, c).cost();
    const double passes = work.backward ? c.scorePassesBackward : c.scorePassesForward;
    cost.launch = c.launchSeconds * (products + 1);
    cost.compute = products * std::max(each.compute, each.memory) + moving(passes * work.scoreBytes, WorkClass::Stream);
    cost.memory = 0;
    return cost;
  }

  Roofline(const StepWork &work, const DeviceKind &kind, const DeviceConstants &c) : work(work), kind(kind), c(c) {}

  const StepWork &work;
  const DeviceKind &kind;
  const DeviceConstants &c;
};

} // namespace

StepCost stepCost(const StepWork &work, const CostDevice &device) { return Roofline(work, device).cost(); }

} // namespace cleave::partitioner
