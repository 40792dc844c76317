// Pooling: maxima and means of windows, in two dimensions and in one.
#include "cleave/Convolution.h"
#include "cleave/Rearrange.h"
#include "frontend/trace/Compose.h"
#include "frontend/trace/Diagnose.h"

#include <cmath>
#include <fmt/format.h>

namespace cleave {

using namespace ir;
using mlir::Value;

/// The windows along one dimension.
struct Windows {
  int64_t size, kernel, stride, padding, dilation;
  bool ceil;

  int64_t reach() const { return dilation * (kernel - 1) + 1; }
  /// Number of windows. Rounded up, the last one must start in the image or in the padding before it.
  int64_t count() const {
    const int64_t room = size + 2 * padding - reach() + (ceil ? stride - 1 : 0);
    if (room < 0)
      return 0;
    const int64_t last = room / stride;
    return ceil && last * stride >= size + padding ? last : last + 1;
  }
  /// Padding after the image; at least `padding`, so that the op, which rounds down, finds as many windows.
  int64_t after() const { return std::max(padding, (count() - 1) * stride + reach() - size - padding); }
  /// For each window, kernel / the number of elements that count.
  std::vector<float> corrections(bool includePad) const {
    std::vector<float> factors;
    for (int64_t i = 0; i < count(); ++i) {
      const int64_t start = i * stride - padding, end = std::min(start + kernel, size + padding);
      const int64_t counted = includePad ? end - start : std::min(end, size) - std::max<int64_t>(start, 0);
      factors.push_back(static_cast<float>(kernel) / static_cast<float>(counted));
    }
    return factors;
  }
};

struct Windows2d {
  Windows h, w;
};

/// Checks the rules of a pooling. `name`: of the function of images, or of the one of lines (images with one row).
static Windows2d windows(const char *name, Tensor x, Pair kernel, Pair stride, Pair padding, Pair dilation, bool ceil,
                         Where where) {
  const Facts facts = {fact(x, "input")};
  if (x.rank() != 4)
    failRule(name, 1, fmt::format("the rank must be 4, found {}", x.rank()), facts, where);
  if (stride.h == 0 && stride.w == 0)
    stride = kernel;
  if (kernel.h < 1 || kernel.w < 1 || stride.h < 1 || stride.w < 1)
    failRule(name, 4,
             fmt::format("kernel {}x{} and stride {}x{} must be positive", kernel.h, kernel.w, stride.h, stride.w),
             facts, where);
  if (dilation.h < 1 || dilation.w < 1)
    failRule(name, 4, fmt::format("dilation {}x{} must be positive", dilation.h, dilation.w), facts, where);
  if (padding.h < 0 || padding.w < 0 || padding.h >= kernel.h || padding.w >= kernel.w)
    failRule(
        name, 3,
        fmt::format("padding {}x{} must be smaller than the kernel {}x{}", padding.h, padding.w, kernel.h, kernel.w),
        facts, where);
  const Windows2d found{{x.size(2), kernel.h, stride.h, padding.h, dilation.h, ceil},
                        {x.size(3), kernel.w, stride.w, padding.w, dilation.w, ceil}};
  if (found.h.count() < 1 || found.w.count() < 1)
    failRule(name, 2,
             fmt::format("the image {}x{} is smaller than the kernel {}x{}", x.size(2), x.size(3), kernel.h, kernel.w),
             facts, where);
  return found;
}

template <class Op> static Value pooled(Ops &ops, Value x, const Windows2d &o) {
  const int64_t size[] = {o.h.kernel, o.w.kernel}, stride[] = {o.h.stride, o.w.stride},
                padding[] = {o.h.padding, o.w.padding, o.h.after(), o.w.after()};
  auto op =
      ops.op<Op>(x, llvm::ArrayRef<int64_t>(size), llvm::ArrayRef<int64_t>(stride), llvm::ArrayRef<int64_t>(padding));
  return op.getResult();
}

/// Places the elements of every dilated window side by side along `dim`: windows of `kernel` elements without overlap.
static Value sideBySide(Ops &ops, Value x, int64_t dim, const Windows &o) {
  Shape shape = Ops::shape(x);
  shape[dim] = o.count() * o.kernel;
  Value place = ops.iota(shape, dim);
  const auto number = [&](int64_t n) { return ops.constantLike(place, static_cast<double>(n)); };
  Value window = ops.div(place, number(o.kernel)), element = ops.sub(place, ops.mul(window, number(o.kernel)));
  Value from = ops.add(ops.mul(window, number(o.stride)), ops.mul(element, number(o.dilation)));
  return ops.gather(x, dim, from);
}

static Tensor maxima(const char *name, Tensor x, const Windows2d &o, Where where) {
  Ops ops(name, where);
  if (o.h.dilation == 1 && o.w.dilation == 1)
    return tensorOf(pooled<MaxPool2dOp>(ops, valueOf(x), o));
  x = pad(x, {o.w.padding, o.w.after(), o.h.padding, o.h.after()}, -INFINITY, where);
  Value apart = sideBySide(ops, sideBySide(ops, valueOf(x), 2, o.h), 3, o.w);
  const auto plain = [](const Windows &w) { return Windows{w.count() * w.kernel, w.kernel, w.kernel, 0, 1, false}; };
  return tensorOf(pooled<MaxPool2dOp>(ops, apart, {plain(o.h), plain(o.w)}));
}

/// The op divides by the size of the kernel: multiplies by a correction where another number of elements counts.
static Tensor means(const char *name, Tensor x, const Windows2d &o, bool includePad, Where where) {
  Ops ops(name, where);
  Value y = pooled<AvgPool2dOp>(ops, valueOf(x), o);
  for (const int64_t dim : {2, 3}) {
    const std::vector<float> factors = (dim == 2 ? o.h : o.w).corrections(includePad);
    if (llvm::any_of(factors, [](float factor) { return factor != 1; }))
      y = ops.mul(y, ops.castLike(ops.along(ops.constant({Ops::size(y, dim)}, factors), Ops::shape(y), dim), y));
  }
  return tensorOf(y);
}

Tensor maxPool2d(Tensor x, Pair kernel, MaxPoolOptions o, Where where) {
  constexpr const char *name = "maxPool2d";
  Trace::current(name, where);
  return maxima(name, x, windows(name, x, kernel, o.stride, o.padding, o.dilation, o.ceilMode, where), where);
}

Tensor avgPool2d(Tensor x, Pair kernel, AvgPoolOptions o, Where where) {
  constexpr const char *name = "avgPool2d";
  Trace::current(name, where);
  return means(name, x, windows(name, x, kernel, o.stride, o.padding, 1, o.ceilMode, where), o.countIncludePad, where);
}

/// An image with one row.
static Tensor row(const char *name, Tensor x, Where where) {
  Trace::current(name, where);
  if (x.rank() != 3)
    failRule(name, 1, fmt::format("the rank must be 3, found {}", x.rank()), {fact(x, "input")}, where);
  return unsqueeze(x, 2, where);
}

Tensor maxPool1d(Tensor x, int64_t kernel, MaxPool1dOptions o, Where where) {
  constexpr const char *name = "maxPool1d";
  Tensor image = row(name, x, where);
  const Pair stride = o.stride == 0 ? kernel : o.stride;
  const Windows2d found =
      windows(name, image, {1, kernel}, {1, stride.w}, {0, o.padding}, {1, o.dilation}, o.ceilMode, where);
  return squeeze(maxima(name, image, found, where), 2, where);
}

Tensor avgPool1d(Tensor x, int64_t kernel, AvgPool1dOptions o, Where where) {
  constexpr const char *name = "avgPool1d";
  Tensor image = row(name, x, where);
  const Pair stride = o.stride == 0 ? kernel : o.stride;
  const Windows2d found = windows(name, image, {1, kernel}, {1, stride.w}, {0, o.padding}, 1, o.ceilMode, where);
  return squeeze(means(name, image, found, o.countIncludePad, where), 2, where);
}

Tensor globalAvgPool(Tensor x, Where where) {
  Trace::current("globalAvgPool", where);
  if (x.rank() != 4)
    failRule("globalAvgPool", 1, fmt::format("the rank must be 4, found {}", x.rank()), {fact(x, "input")}, where);
  return mean(x, {2, 3}, false, where);
}

} // namespace cleave
