// Runs with noise, and the bounds that follow from them.
#include "ir/interpreter/Bounds.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::ir {

static constexpr double ulps = 8; // units of the last bit by which noise changes a result

/// Splitmix64 (Steele, Lea, Flood 2014).
static uint64_t mixed(uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

void Bounds::widen(const Run &run, int samples, Rounding noise, uint64_t seed) {
  noise.tiles = tiles;
  for (int sample = 0; sample < samples; ++sample) {
    noise.state = noise.sample = mixed(seed + static_cast<uint64_t>(sample)) | 1;
    RoundingScope scope(noise);
    const std::vector<Slots> noisy = run();
    for (size_t s = 0; s < exact.size(); ++s)
      for (auto &[key, tensor] : spread[s]) {
        const HostTensor &right = exact[s].at(key), &found = noisy[s].at(key);
        for (size_t i = 0; i < tensor.values.size(); ++i) {
          const double apart = std::abs(found.values[i] - right.values[i]);
          const bool same = std::isnan(found.values[i]) && std::isnan(right.values[i]);
          // Rounding of the result itself. In double at least 1e-16: a gradient may be 1 minus a probability near 1.
          const double last = noise.ofDouble ? std::max(std::abs(right.values[i]) * 0x1p-52, 1e-16)
                                             : std::abs(right.values[i]) * 0x1p-24;
          tensor.values[i] =
              same ? tensor.values[i] : std::max({tensor.values[i], std::isnan(apart) ? INFINITY : apart, last});
        }
      }
  }
}

static Rounding noiseOfDouble() {
  Rounding noise{Rounding::Kind::Noise};
  noise.ulps = ulps;
  noise.ofDouble = true;
  return noise;
}

Bounds Bounds::ofDouble(const Run &run, int samples, bool tiles) {
  Bounds bounds;
  bounds.tiles = tiles;
  {
    RoundingScope scope({Rounding::Kind::None});
    bounds.exact = run();
    bounds.largest = RoundingScope::now().largest;
  }
  bounds.spread = bounds.exact;
  for (Slots &slots : bounds.spread)
    for (auto &[key, tensor] : slots)
      std::fill(tensor.values.begin(), tensor.values.end(), 0);
  bounds.widen(run, samples, noiseOfDouble(), 1);
  return bounds;
}

std::vector<Slots> Bounds::noisyInDouble(const Run &run) {
  Rounding noise = noiseOfDouble();
  noise.state = noise.sample = mixed(211) | 1;
  RoundingScope scope(noise);
  return run();
}

void Bounds::widenOfDouble(const Run &run) { widen(run, 20, noiseOfDouble(), 77); }

Bounds Bounds::inTypes(const Types &types) const {
  Bounds bounds = *this;
  for (Slots &slots : bounds.spread) // from the 49th bit to the 24th
    for (auto &[key, tensor] : slots)
      for (double &value : tensor.values)
        value *= 0x1p25 * types.coarse;
  return bounds;
}

bool Bounds::widenInTypes(const Run &run, const Types &types) {
  constexpr int samples[] = {4, 20};
  constexpr uint64_t seeds[] = {5, 99};
  if (widened == 2)
    return false;
  Rounding noise{Rounding::Kind::Noise};
  noise.ulps = ulps * types.coarse;
  noise.addends = types.addends;
  widen(run, samples[widened], noise, seeds[widened]);
  ++widened;
  return true;
}

bool Bounds::leavesRange(const Run &run, const Types &types, size_t step) const {
  RoundingScope scope({Rounding::Kind::ToType});
  const std::vector<Slots> typed = run();
  if (RoundingScope::now().halfAddends > 65504)
    return true;
  for (size_t s = 0; s <= step; ++s)
    for (const auto &[key, tensor] : typed[s])
      for (size_t i = 0; i < tensor.values.size(); ++i)
        if (!std::isfinite(tensor.values[i]) ||
            (types.addends == DType::F16 && key.kind == SlotKind::Gradient &&
             std::abs(tensor.values[i]) > 65504. / 8) ||
            (key.name.find("loss_scale") != std::string::npos && tensor.values[i] != exact[s].at(key).values[i]))
          return true;
  return false;
}

std::optional<Outside> firstOutside(const HostTensor &expected, const HostTensor *spread,
                                    const std::vector<int64_t> &indices, const std::vector<double> &values) {
  double largest = 0;
  for (size_t i = 0; spread && i < spread->values.size(); ++i)
    largest = std::max(largest, spread->values[i]);
  for (size_t i = 0; i < indices.size(); ++i) {
    const auto at = static_cast<size_t>(indices[i]);
    const double want = expected.values[at], got = values[i];
    if (want == got || (std::isnan(want) && std::isnan(got)))
      continue;
    const double bound = spread ? 8 * spread->values[at] + 2 * largest + 1e-35 : 0;
    if (!std::isfinite(bound) || (spread && !(std::abs(want) + bound < 1e30))) // the largest f32 is 3e38
      continue;
    // A bound above both the value and 0.5 means that rounding errors were amplified, for example by several norms of
    // equal elements. Samples of noise do not bound them.
    if (spread && bound > std::abs(want) && bound > 0.5)
      continue;
    if (!(std::abs(want - got) <= bound))
      return Outside{indices[i], got, want, bound};
  }
  return std::nullopt;
}

std::string placeText(int64_t index, const std::vector<int64_t> &shape) {
  std::vector<int64_t> at(shape.size());
  for (size_t d = shape.size(); d-- > 0; index /= shape[d])
    at[d] = index % shape[d];
  return fmt::format("[{}]", fmt::join(at, ", "));
}

} // namespace cleave::ir
