// Image resizing: interpolation and adaptive pooling, one dimension at a time. Nearest interpolation repeats, slices or
// gathers elements. Bilinear interpolation and means of unequal windows multiply by a matrix computed from the indices,
// in f32.
#include "cleave/Convolution.h"
#include "frontend/trace/Compose.h"
#include "frontend/trace/Diagnose.h"
#include "ir/graph/Marks.h"

#include <cmath>
#include <fmt/format.h>

namespace cleave {

using namespace ir;
using mlir::Value;

static void checkPicture(const char *name, int floatRule, Tensor x, Where where) {
  if (x.rank() != 4)
    failRule(name, 1, fmt::format("the rank must be 4, found {}", x.rank()), {fact(x, "input")}, where);
  checkFloat(name, floatRule, x, where);
}

/// matrix [out, in] times x along `dim` (2 or 3).
static Value product(Ops &ops, Value x, Value matrix, int64_t dim) {
  Value rows = ops.swap(x, dim, 3);
  Value result = ops.matmul(rows, matrix, false, true);
  result.getDefiningOp()->setAttr(attr::single, ops.trace.builder.getUnitAttr());
  return ops.swap(result, dim, 3);
}

// ---- nearest ------------------------------------------------------------------------------------------------------

/// The index of the source element for each of `out` elements, computed with PyTorch's float arithmetic.
static std::vector<int32_t> nearestPlaces(int64_t in, int64_t out, double scale) {
  const float ratio = scale > 0 ? static_cast<float>(1 / scale) : static_cast<float>(in) / static_cast<float>(out);
  std::vector<int32_t> places;
  for (int64_t i = 0; i < out; ++i) {
    const auto place = out == in       ? i
                       : out == 2 * in ? i / 2
                                       : static_cast<int64_t>(std::floor(static_cast<float>(i) * ratio));
    places.push_back(static_cast<int32_t>(std::min(place, in - 1)));
  }
  return places;
}

/// Whether places[i] is floor(i * step / every) for all i.
static bool isRegular(const std::vector<int32_t> &places, int64_t step, int64_t every) {
  for (size_t i = 0; i < places.size(); ++i)
    if (places[i] != static_cast<int64_t>(i) * step / every)
      return false;
  return true;
}

static Value nearest(Ops &ops, Value x, int64_t dim, int64_t out, double scale) {
  Shape shape = Ops::shape(x), open = shape;
  const int64_t in = shape[dim];
  const std::vector<int32_t> places = nearestPlaces(in, out, scale);
  if (out == in && isRegular(places, 1, 1))
    return x;
  shape[dim] = out;
  if (out % in == 0 && isRegular(places, in, out)) { // repeats each element
    open.insert(open.begin() + dim + 1, out / in);
    std::vector<int64_t> dims;
    for (int64_t d = 0; d < 5; ++d)
      if (d != dim + 1)
        dims.push_back(d);
    return ops.reshape(ops.broadcast(x, open, dims), shape);
  }
  if (in % out == 0 && isRegular(places, in, out)) { // takes the first of each run
    open[dim] = out;
    open.insert(open.begin() + dim + 1, in / out);
    return ops.reshape(ops.slice(ops.reshape(x, open), dim + 1, 0, 1), shape);
  }
  return ops.gather(x, dim, ops.along(ops.constant({out}, places), shape, dim));
}

// ---- bilinear -----------------------------------------------------------------------------------------------------

/// Matrix [out, in] of linear interpolation: row i has the weights max(0, 1 - |j - place|), where place is the position
/// of element i in the input, limited to [0, in - 1].
static Value hats(Ops &ops, int64_t in, int64_t out, double scale, bool corners) {
  const double ratio = corners     ? (out > 1 ? double(in - 1) / double(out - 1) : 0)
                       : scale > 0 ? 1 / scale
                                   : double(in) / double(out);
  const Shape shape{out, in};
  Value row = ops.cast(ops.iota(shape, 0), DType::F32), column = ops.cast(ops.iota(shape, 1), DType::F32);
  Value place = ops.scale(row, ratio);
  if (!corners)
    place = ops.add(place, ops.constantLike(place, 0.5 * ratio - 0.5));
  place = ops.min(ops.max(place, ops.constantLike(place, 0)), ops.constantLike(place, static_cast<double>(in - 1)));
  Value weight = ops.sub(ops.constantLike(place, 1), ops.abs(ops.sub(column, place)));
  return ops.max(weight, ops.constantLike(weight, 0));
}

static Value bilinear(Ops &ops, Value x, int64_t dim, int64_t out, double scale, bool corners) {
  const int64_t in = Ops::size(x, dim);
  return in == out && (corners || scale == 0 || scale == 1) ? x
                                                            : product(ops, x, hats(ops, in, out, scale, corners), dim);
}

Tensor interpolate(Tensor x, InterpolateOptions o, Where where) {
  constexpr const char *name = "interpolate";
  Ops ops(name, where);
  checkPicture(name, 4, x, where);
  if (o.scale > 0 && o.size.h == 0 && o.size.w == 0)
    o.size = {static_cast<int64_t>(std::floor(static_cast<double>(x.size(2)) * o.scale)),
              static_cast<int64_t>(std::floor(static_cast<double>(x.size(3)) * o.scale))};
  else if (o.scale != 0)
    failRule(name, 2,
             fmt::format("either a size or a positive scale is required, found size {}x{} and scale {}", o.size.h,
                         o.size.w, o.scale),
             {fact(x, "input")}, where);
  if (o.size.h < 1 || o.size.w < 1)
    failRule(name, 2, fmt::format("the result's size must be positive, found {}x{}", o.size.h, o.size.w),
             {fact(x, "input")}, where);
  if (o.alignCorners && o.mode != Interpolation::Bilinear)
    failRule(name, 3, "alignCorners requires bilinear interpolation", {fact(x, "input")}, where);
  Value v = valueOf(x);
  if (o.mode == Interpolation::Nearest)
    return tensorOf(nearest(ops, nearest(ops, v, 3, o.size.w, o.scale), 2, o.size.h, o.scale));
  v = bilinear(ops, ops.single(v), 3, o.size.w, o.scale, o.alignCorners);
  return tensorOf(ops.activation(bilinear(ops, v, 2, o.size.h, o.scale, o.alignCorners)));
}

// ---- adaptive pooling ---------------------------------------------------------------------------------------------

/// Matrix [out, in] of means: row i is 1 / size inside window i, [i in / out, ceil((i + 1) in / out)), and 0 elsewhere.
static Value windowMeans(Ops &ops, int64_t in, int64_t out) {
  const Shape shape{out, in};
  Value row = ops.iota(shape, 0), column = ops.iota(shape, 1);
  const auto number = [&](int64_t value) { return ops.constantLike(row, static_cast<double>(value)); };
  Value scaled = ops.mul(row, number(in)), start = ops.div(scaled, number(out));
  Value end = ops.div(ops.add(scaled, number(in + out - 1)), number(out));
  Value inside = ops.min(ops.compare(Predicate::Ge, column, start), ops.compare(Predicate::Lt, column, end));
  Value size = ops.cast(ops.sub(end, start), DType::F32);
  return ops.select(inside, ops.div(ops.constantLike(size, 1), size), ops.constantLike(size, 0));
}

static void checkAdaptive(const char *name, Tensor x, Pair size, Where where) {
  Trace::current(name, where);
  checkPicture(name, 3, x, where);
  if (size.h < 1 || size.w < 1)
    failRule(name, 2, fmt::format("sizes must be positive, found {}x{}", size.h, size.w), {fact(x, "input")}, where);
}

Tensor adaptiveAvgPool2d(Tensor x, Pair size, Where where) {
  constexpr const char *name = "adaptiveAvgPool2d";
  checkAdaptive(name, x, size, where);
  const int64_t h = x.size(2), w = x.size(3);
  if (size.h == 1 && size.w == 1)
    return mean(x, {2, 3}, true, where);
  if (h % size.h == 0 && w % size.w == 0)
    return avgPool2d(x, {h / size.h, w / size.w}, {}, where);
  Ops ops(name, where);
  Value v = ops.single(valueOf(x));
  if (size.w != w)
    v = product(ops, v, windowMeans(ops, w, size.w), 3);
  if (size.h != h)
    v = product(ops, v, windowMeans(ops, h, size.h), 2);
  return tensorOf(ops.activation(v));
}

/// Maxima of the adaptive windows along `dim`: computes each window separately and concatenates the results.
static Value windowMaxima(Ops &ops, Value x, int64_t dim, int64_t out) {
  const Shape shape = Ops::shape(x);
  const int64_t in = shape[dim];
  if (in == out)
    return x;
  std::vector<Value> windows;
  for (int64_t i = 0; i < out; ++i) {
    Value window = ops.slice(x, dim, i * in / out, ((i + 1) * in + out - 1) / out);
    windows.push_back(ops.kept(ops.reduce(ReduceKind::Max, window, {dim}), Ops::shape(window), {dim}, true));
  }
  return ops.concat(windows, dim);
}

Tensor adaptiveMaxPool2d(Tensor x, Pair size, Where where) {
  constexpr const char *name = "adaptiveMaxPool2d";
  checkAdaptive(name, x, size, where);
  const int64_t h = x.size(2), w = x.size(3);
  if (h % size.h == 0 && w % size.w == 0)
    return maxPool2d(x, {h / size.h, w / size.w}, {}, where);
  Ops ops(name, where);
  return tensorOf(windowMaxima(ops, windowMaxima(ops, valueOf(x), 3, size.w), 2, size.h));
}

} // namespace cleave
