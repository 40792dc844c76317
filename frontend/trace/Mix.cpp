// Mixup and CutMix, composed of ops. Random numbers are drawn for rows, and the first of a group counts, so that they
// are the same under every split.
#include "frontend/trace/Mix.h"
#include "cleave/Create.h"
#include "cleave/Functional.h"
#include "cleave/Pointwise.h"
#include "cleave/Rearrange.h"
#include "runtime/base/Error.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

namespace cleave {

std::vector<float> betaQuantiles(double alpha, int64_t n) {
  // The integral from 0 to 1/2 of x^(alpha - 1) (1 - x)^(alpha - 1), with x = t^(1 / alpha): no pole at 0.
  constexpr int64_t pieces = 1 << 16;
  const double end = std::pow(0.5, alpha), width = end / pieces;
  const auto density = [&](double t) { return std::pow(1 - std::pow(t, 1 / alpha), alpha - 1); };
  std::vector<double> below{0}; // at piece i
  for (int64_t i = 0; i < pieces; ++i) {
    const double t = static_cast<double>(i) * width;
    below.push_back(below.back() + (density(t) + 4 * density(t + width / 2) + density(t + width)) * width / 6);
  }
  std::vector<float> values;
  for (int64_t i = 0; i <= n; ++i) {
    const double part = static_cast<double>(std::min(i, n - i)) / static_cast<double>(n); // of the smaller half
    const double want = 2 * part * below.back();
    const auto at = std::ranges::lower_bound(below, want) - below.begin();
    double t = 0;
    if (at > 0) {
      const auto piece = static_cast<size_t>(at) - 1;
      t = (static_cast<double>(piece) + (want - below[piece]) / (below[piece + 1] - below[piece])) * width;
    }
    const double x = std::pow(t, 1 / alpha);
    values.push_back(static_cast<float>(2 * i <= n ? x : 1 - x));
  }
  return values;
}

namespace {

/// x [b, ...] with the rows of each group in reverse order.
Tensor partners(const Mix &mix, Tensor x, Where where) {
  Shape groups = x.shape();
  groups[0] /= mix.group;
  groups.insert(groups.begin() + 1, mix.group);
  return reshape(flip(reshape(x, groups, where), {1}, where), x.shape(), where);
}

/// [b]: numbers in [0, 1), one for each group.
Tensor drawn(const Mix &mix, int64_t rows, Where where) {
  const Shape groups{rows / mix.group, mix.group};
  return reshape(expand(slice(reshape(rand({rows}, where), groups, where), 1, 0, 1, where), groups, where), {rows},
                 where);
}

/// Of Beta(alpha, alpha).
Tensor drawnShare(const Mix &mix, double alpha, int64_t rows, Where where) {
  constexpr int64_t steps = 1024;
  const Tensor at = drawn(mix, rows, where) * static_cast<double>(steps), whole = floor(at, where);
  const Tensor table = constant({steps + 1}, betaQuantiles(alpha, steps), where),
               index = cast(whole, DType::I32, where);
  const Tensor low = indexSelect(table, 0, index, Outside::Zero, where),
               high = indexSelect(table, 0, index + 1, Outside::Zero, where);
  return low + (at - whole) * (high - low);
}

Tensor ofImages(Tensor perRow, Where where) { return reshape(perRow, {perRow.size(0), 1, 1, 1}, where); }

/// Where a box of the area 1 - share lies; the share becomes what the box leaves.
Tensor boxes(const Mix &mix, Tensor images, Tensor &share, Where where) {
  const int64_t rows = images.size(0);
  const auto inside = [&](int64_t dim, Tensor &length) {
    const auto size = static_cast<double>(images.size(dim));
    const Tensor half = floor(sqrt(1.0 - share) * size, where) * 0.5,
                 center = floor(drawn(mix, rows, where) * size, where);
    const Tensor first = maximum(center - half, 0.0), end = minimum(center + half, size);
    length = maximum(floor(end, where) - floor(first, where), 0.0);
    Shape along{1, 1, 1, 1};
    along[static_cast<size_t>(dim)] = images.size(dim);
    const Tensor places = reshape(arange(0, size, 1, where), along, where);
    return logicalAnd(places >= ofImages(floor(first, where), where), places < ofImages(floor(end, where), where),
                      where);
  };
  Tensor height, width;
  const Tensor y = inside(2, height), x = inside(3, width);
  share = 1.0 - height * width * (1.0 / static_cast<double>(images.size(2) * images.size(3)));
  return logicalAnd(y, x, where);
}

} // namespace

MixedRows mixImages(const Mix &mix, Tensor images, Where where) {
  const auto check = [](bool holds, const std::string &rule) {
    if (!holds)
      throw userError("mix: " + rule);
  };
  for (const double alpha : {mix.mixup, mix.cutMix})
    check(alpha >= 0 && alpha <= 1000, fmt::format("alpha must lie in [0, 1000], found {}", alpha));
  check(images.rank() == 4 && images.dtype() == DType::F32, "the first input must be f32 [b, channels, height, width]");
  const int64_t rows = images.size(0);
  check(mix.group >= 2 && rows % mix.group == 0,
        fmt::format("{} samples of a microbatch cannot be cut into groups of {}, which must be at least 2", rows,
                    mix.group));
  const internal::PerMicrobatch meant(where); // groups lie within a microbatch
  const Tensor other = partners(mix, images, where);
  MixedRows blended, cut;
  if (mix.mixup > 0) {
    blended.share = drawnShare(mix, mix.mixup, rows, where);
    const Tensor part = ofImages(blended.share, where);
    blended.images = images * part + other * (1.0 - part);
  }
  if (mix.cutMix > 0) {
    cut.share = drawnShare(mix, mix.cutMix, rows, where);
    const Tensor box = boxes(mix, images, cut.share, where);
    cut.images = cleave::where(box, other, images, where);
  }
  if (mix.mixup <= 0 || mix.cutMix <= 0)
    return mix.mixup > 0 ? blended : cut;
  const Tensor first = drawn(mix, rows, where) < 0.5;
  return {cleave::where(ofImages(first, where), blended.images, cut.images, where),
          cleave::where(first, blended.share, cut.share, where)};
}

Tensor mixLabels(const Mix &mix, Tensor labels, Tensor share, int64_t classes, Where where) {
  const internal::PerMicrobatch meant(where);
  const Tensor own = oneHot(labels, classes, DType::F32, Outside::Error, where), part = unsqueeze(share, -1, where);
  return own * part + partners(mix, own, where) * (1.0 - part);
}

} // namespace cleave
