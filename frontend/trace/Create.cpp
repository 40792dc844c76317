// Constants, random numbers, ranges, masks.
#include "cleave/Create.h"
#include "frontend/trace/Compose.h"
#include "frontend/trace/Diagnose.h"
#include "frontend/trace/Indices.h"

#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave {

using namespace ir;
using mlir::Value;

static int64_t checkSizes(const char *name, const Shape &shape, Where where) {
  int64_t count = 1;
  for (int64_t size : shape) {
    if (size < 1)
      failRule(name, 1, fmt::format("sizes must be positive, found [{}]", fmt::join(shape, ", ")), {}, where);
    count *= size;
  }
  return count;
}

template <class T> static Tensor constantOf(const Shape &shape, const std::vector<T> &values, Where where) {
  constexpr int64_t largest = int64_t{1} << 18;
  Ops ops("constant", where);
  const int64_t count = checkSizes("constant", shape, where);
  if (static_cast<int64_t>(values.size()) != count)
    failRule("constant", 2,
             fmt::format("shape [{}] has {} elements, found {} values", fmt::join(shape, ", "), count, values.size()),
             {}, where);
  if (count > largest)
    failRule("constant", 3,
             fmt::format("{} elements exceed the limit of {} for a constant; use a Buffer", count, largest), {}, where);
  return tensorOf(ops.constant(shape, values));
}

Tensor constant(Shape shape, const std::vector<float> &values, Where where) { return constantOf(shape, values, where); }
Tensor constant(Shape shape, const std::vector<int32_t> &values, Where where) {
  return constantOf(shape, values, where);
}
Tensor constant(Shape shape, std::initializer_list<double> values, Where where) {
  return constantOf(shape, std::vector<float>(values.begin(), values.end()), where);
}

Tensor rand(Shape shape, Where where) {
  Ops ops("rand", where);
  checkSizes("rand", shape, where);
  return tensorOf(ops.uniform(shape, "rand"));
}

/// sqrt(-2 log(1 - u)) cos(2 pi v); 1 - u is never 0.
Tensor randn(Shape shape, Where where) {
  Ops ops("randn", where);
  checkSizes("randn", shape, where);
  Value u = ops.uniform(shape, "randn"), v = ops.uniform(shape, "randn");
  Value radius = ops.sqrt(ops.scale(ops.log(ops.sub(ops.constantLike(u, 1), u)), -2));
  Value angle = ops.scale(v, 2 * 3.14159265358979323846);
  return tensorOf(ops.mul(radius, ops.cos(angle)));
}

Tensor arange(double start, double end, double step, Where where) {
  Ops ops("arange", where);
  const double count = std::ceil((end - start) / step);
  if (!(step != 0 && count >= 1 && count < 0x1p31))
    failRule("arange", 1, fmt::format("the range from {} to {} in steps of {} is empty", start, end, step), {}, where);
  Value steps = ops.cast(ops.iota({static_cast<int64_t>(count)}, 0), DType::F32);
  Value scaled = ops.scale(steps, step);
  return tensorOf(start == 0 ? scaled : ops.add(scaled, ops.constantLike(scaled, start)));
}

Tensor oneHot(Tensor ids, int64_t classes, DType type, Outside outside, Where where) {
  Ops ops("oneHot", where);
  if (ids.dtype() != DType::I32)
    failRule("oneHot", 1, "ids must be i32", {fact(ids, "ids")}, where);
  if (classes < 1)
    failRule("oneHot", 2, fmt::format("the number of classes must be positive, found {}", classes), {fact(ids, "ids")},
             where);
  if (outside == Outside::Error)
    readIndices(ops, "oneHot", valueOf(ids), IndexRange::labels(classes));
  Shape shape = ids.shape();
  shape.push_back(classes);
  const int64_t last = ids.rank();
  Value hit = ops.compare(Predicate::Eq, ops.broadcastBack(valueOf(ids), shape, {last}), ops.iota(shape, last));
  return tensorOf(type == DType::I1 ? hit : ops.cast(hit, type));
}

/// x where column - row satisfies `keeps` relative to `diagonal`, zeros elsewhere.
static Tensor triangle(const char *name, Tensor x, Predicate keeps, int64_t diagonal, Where where) {
  Ops ops(name, where);
  if (x.rank() < 2)
    failRule(name, 1, fmt::format("the rank must be at least 2, found {}", x.rank()), {fact(x, "input")}, where);
  const Shape square{x.size(-2), x.size(-1)};
  Value row = ops.iota(square, 0), column = ops.iota(square, 1);
  Value kept = ops.compare(keeps, ops.sub(column, row), static_cast<double>(diagonal));
  kept = ops.broadcast(kept, x.shape(), {x.rank() - 2, x.rank() - 1});
  return tensorOf(ops.select(kept, valueOf(x), ops.constantLike(valueOf(x), 0)));
}

Tensor tril(Tensor x, int64_t diagonal, Where where) { return triangle("tril", x, Predicate::Le, diagonal, where); }
Tensor triu(Tensor x, int64_t diagonal, Where where) { return triangle("triu", x, Predicate::Ge, diagonal, where); }

} // namespace cleave
