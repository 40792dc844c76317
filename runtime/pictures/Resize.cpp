// Resamples rows and columns in fixed point as Pillow's Resample.c does: weights of 22 bits, rounded 8-bit values in
// between.
#include "runtime/pictures/Picture.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace cleave {
namespace {

constexpr int precision = 32 - 8 - 2; // bits of a weight: a sum of products with 8-bit values stays within 32 bits

double bilinear(double x) { return std::max(0.0, 1 - std::abs(x)); }

/// Keys 1981, with a = -0.5.
double bicubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1)
    return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

/// What each pixel of the result takes of a row of pixels.
struct Weights {
  struct Range {
    int64_t first, count;
  };
  std::vector<Range> ranges;
  std::vector<int32_t> values; ///< `stride` for each pixel of the result
  size_t stride = 0;
};

/// Of `to` pixels that cover `length` of a row of `from` pixels, beginning at `begin`.
Weights weightsOf(double begin, double length, int64_t from, int64_t to, Resampling filter) {
  const auto function = filter == Resampling::Bilinear ? bilinear : bicubic;
  const double scale = length / static_cast<double>(to), spread = std::max(1.0, scale),
               support = (filter == Resampling::Bilinear ? 1.0 : 2.0) * spread;
  Weights weights;
  weights.stride = static_cast<size_t>(std::ceil(support)) * 2 + 1;
  weights.values.resize(weights.stride * static_cast<size_t>(to));
  std::vector<double> exact(weights.stride);
  for (int64_t i = 0; i < to; ++i) {
    const double center = begin + (static_cast<double>(i) + 0.5) * scale;
    const int64_t first = std::max<int64_t>(static_cast<int64_t>(center - support + 0.5), 0),
                  end = std::min(static_cast<int64_t>(center + support + 0.5), from);
    double sum = 0;
    for (int64_t x = first; x < end; ++x)
      sum += exact[static_cast<size_t>(x - first)] = function((static_cast<double>(x) - center + 0.5) * (1 / spread));
    int32_t *values = weights.values.data() + weights.stride * static_cast<size_t>(i);
    for (int64_t x = first; x < end; ++x) {
      const double weight = sum == 0 ? 0 : exact[static_cast<size_t>(x - first)] / sum * (1 << precision);
      *values++ = static_cast<int32_t>(weight < 0 ? weight - 0.5 : weight + 0.5);
    }
    weights.ranges.push_back({first, end - first});
  }
  return weights;
}

constexpr int32_t half = 1 << (precision - 1);

uint8_t clipped(int32_t sum) { return static_cast<uint8_t>(std::clamp(sum >> precision, 0, 255)); }

/// The box of the picture, each row of it resized: `length` of it from `begin` becomes `width` pixels.
Picture rowsResized(const Picture &picture, const PictureBox &box, double begin, double length, int64_t width,
                    Resampling filter) {
  constexpr int64_t channels = Picture::channels;
  Picture made{width, box.height, {}};
  made.pixels.resize(static_cast<size_t>(channels * width * box.height));
  const Weights weights = weightsOf(begin, length, box.width, width, filter);
  for (int64_t y = 0; y < box.height; ++y) {
    const uint8_t *from = picture.row(box.y + y) + channels * box.x;
    uint8_t *to = made.row(y);
    for (int64_t x = 0; x < width; ++x, to += channels) {
      const Weights::Range &range = weights.ranges[static_cast<size_t>(x)];
      const int32_t *weight = weights.values.data() + weights.stride * static_cast<size_t>(x);
      const uint8_t *pixel = from + channels * range.first;
      int32_t r = half, g = half, b = half;
      for (int64_t i = 0; i < range.count; ++i, pixel += channels)
        r += weight[i] * pixel[0], g += weight[i] * pixel[1], b += weight[i] * pixel[2];
      to[0] = clipped(r), to[1] = clipped(g), to[2] = clipped(b);
    }
  }
  return made;
}

/// The same for columns.
Picture columnsResized(const Picture &picture, const PictureBox &box, double begin, double length, int64_t height,
                       Resampling filter) {
  constexpr int64_t channels = Picture::channels;
  Picture made{box.width, height, {}};
  made.pixels.resize(static_cast<size_t>(channels * box.width * height));
  const Weights weights = weightsOf(begin, length, box.height, height, filter);
  std::vector<int32_t> sums(static_cast<size_t>(channels * box.width));
  for (int64_t y = 0; y < height; ++y) {
    const Weights::Range &range = weights.ranges[static_cast<size_t>(y)];
    const int32_t *weight = weights.values.data() + weights.stride * static_cast<size_t>(y);
    std::ranges::fill(sums, half);
    for (int64_t i = 0; i < range.count; ++i) {
      const uint8_t *from = picture.row(box.y + range.first + i) + channels * box.x;
      for (size_t x = 0; x < sums.size(); ++x)
        sums[x] += weight[i] * from[x];
    }
    std::ranges::transform(sums, made.row(y), clipped);
  }
  return made;
}

/// The part `within` of `box`, whose coordinates count from the box's corner, scaled. Rounding in between makes the
/// order matter. It is that of Pillow 13: columns first where that removes more than twice as many rows as columns are
/// removed; before 13.0, rows always came first.
Picture resample(const Picture &picture, const PictureBox &box, const FractionBox &within, int64_t width,
                 int64_t height, Resampling filter) {
  const bool rows = within.x != 0 || within.width != static_cast<double>(width) || width != box.width,
             columns = within.y != 0 || within.height != static_cast<double>(height) || height != box.height;
  const auto resizeRows = [&](const Picture &from, const PictureBox &part) {
    return rows ? rowsResized(from, part, within.x, within.width, width, filter) : cropped(from, part);
  };
  if (!columns)
    return resizeRows(picture, box);
  const auto resizeColumns = [&](const Picture &from, const PictureBox &part) {
    return columnsResized(from, part, within.y, within.height, height, filter);
  };
  if (!rows)
    return resizeColumns(picture, box);
  if (box.height - height > std::max<int64_t>(0, 2 * (box.width - width)))
    return resizeRows(resizeColumns(picture, box), {0, 0, box.width, height});
  return resizeColumns(resizeRows(picture, box), {0, 0, width, box.height});
}

} // namespace

Picture cropped(const Picture &picture, const PictureBox &box) {
  Picture made{box.width, box.height, {}};
  made.pixels.resize(static_cast<size_t>(Picture::channels * box.width * box.height));
  for (int64_t y = 0; y < box.height; ++y)
    std::memcpy(made.row(y), picture.row(box.y + y) + Picture::channels * box.x,
                static_cast<size_t>(Picture::channels * box.width));
  return made;
}

Picture resized(const Picture &picture, const PictureBox &box, int64_t width, int64_t height, Resampling filter) {
  return resample(picture, box, FractionBox{0, 0, static_cast<double>(box.width), static_cast<double>(box.height)},
                  width, height, filter);
}

Picture resampled(const Picture &picture, const FractionBox &box, int64_t width, int64_t height, Resampling filter) {
  const auto touched = [](double begin, double length, int64_t most) {
    const auto first = std::clamp<int64_t>(static_cast<int64_t>(std::floor(begin)), 0, most - 1);
    return std::pair(first,
                     std::clamp<int64_t>(static_cast<int64_t>(std::ceil(begin + length)), first + 1, most) - first);
  };
  const auto [x, wide] = touched(box.x, box.width, picture.width);
  const auto [y, high] = touched(box.y, box.height, picture.height);
  return resample(picture, {x, y, wide, high},
                  {box.x - static_cast<double>(x), box.y - static_cast<double>(y), box.width, box.height}, width,
                  height, filter);
}

} // namespace cleave
