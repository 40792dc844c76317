// Reductions and cumulative sums, composed of sums, products and comparisons.
#include "cleave/Reduce.h"
#include "frontend/trace/Compose.h"
#include "frontend/trace/Diagnose.h"

#include <cmath>
#include <fmt/format.h>

namespace cleave {

using namespace ir;
using mlir::Value;

static int64_t countOf(const Shape &shape, const std::vector<int64_t> &dims) {
  int64_t count = 1;
  for (int64_t dim : dims)
    count *= shape[dim];
  return count;
}

/// The variance in f32: mean of the squared distances from the mean, times count / (count - correction).
static Value variance(Ops &ops, const char *name, Tensor x, const std::vector<int64_t> &dims, const VarOptions &o) {
  const Shape shape = x.shape();
  const int64_t count = countOf(shape, dims);
  if (o.correction < 0 || count <= o.correction)
    failRule(name, 2,
             fmt::format("a variance needs more values than the correction, found {} and {}", count, o.correction),
             {fact(x, "input")}, ops.where);
  Value v = ops.single(valueOf(x));
  Value mean = ops.scale(ops.sum(v, dims), 1 / static_cast<double>(count));
  Value distance = ops.sub(v, ops.broadcastBack(mean, shape, dims));
  Value squares = ops.sum(ops.mul(distance, distance), dims);
  return ops.scale(squares, 1 / static_cast<double>(count - o.correction));
}

Tensor var(Tensor x, std::vector<int64_t> given, VarOptions options, Where where) {
  Ops ops("var", where);
  checkFloat("var", 3, x, where);
  const auto dims = reducedDims("var", x, given, where);
  Value result = ops.activation(variance(ops, "var", x, dims, options));
  return tensorOf(ops.kept(result, x.shape(), dims, options.keepDim));
}

Tensor stddev(Tensor x, std::vector<int64_t> given, VarOptions options, Where where) {
  Ops ops("stddev", where);
  checkFloat("stddev", 3, x, where);
  const auto dims = reducedDims("stddev", x, given, where);
  Value result = ops.activation(ops.safeSqrt(variance(ops, "stddev", x, dims, options)));
  return tensorOf(ops.kept(result, x.shape(), dims, options.keepDim));
}

/// The p-th root of sum |x|^p. The derivative is 0 if the norm is 0, and at elements that are 0 (also if p < 1).
static Value powerNorm(Ops &ops, Value x, double p, const std::vector<int64_t> &dims) {
  Value none = ops.compare(Predicate::Eq, x, 0);
  Value size = ops.select(ops.compare(Predicate::Lt, x, 0), ops.neg(x), x); // passes the gradient at NaN, unlike abs
  Value powers = ops.pow(ops.select(none, ops.constantLike(x, 1), size), ops.constantLike(x, p));
  Value sum = ops.sum(ops.select(none, ops.constantLike(x, p < 0 ? INFINITY : 0), powers), dims);
  if (p < 0)
    return ops.pow(sum, ops.constantLike(sum, 1 / p));
  Value zero = ops.compare(Predicate::Eq, sum, 0);
  Value root = ops.pow(ops.select(zero, ops.constantLike(sum, 1), sum), ops.constantLike(sum, 1 / p));
  return ops.select(zero, ops.constantLike(sum, 0), root);
}

/// The largest or smallest |x|. A row with NaN has the norm NaN and, as in PyTorch, gradients of 0: the gradient of its
/// maximum would be NaN for every element.
static Value extremeNorm(Ops &ops, Value x, ReduceKind kind, const std::vector<int64_t> &dims) {
  Value size = ops.abs(x), whole = ops.reduce(kind, ops.detach(size), dims);
  Value never = ops.constantLike(size, kind == ReduceKind::Max ? 0 : INFINITY);
  Value best = ops.reduce(kind, ops.select(ops.compare(Predicate::Ne, x, x), never, size), dims);
  return ops.select(ops.compare(Predicate::Ne, whole, whole), whole, best);
}

Tensor norm(Tensor x, double p, std::vector<int64_t> given, bool keepDim, Where where) {
  Ops ops("norm", where);
  checkFloat("norm", 3, x, where);
  if (std::isnan(p))
    failRule("norm", 2, "p must not be NaN", {fact(x, "input")}, where);
  const auto dims = reducedDims("norm", x, given, where);
  Value v = ops.single(valueOf(x)), result;
  if (p == 2)
    result = ops.safeSqrt(ops.sum(ops.mul(v, v), dims));
  else if (p == 1)
    result = ops.sum(ops.abs(v), dims);
  else if (std::isinf(p))
    result = extremeNorm(ops, v, p > 0 ? ReduceKind::Max : ReduceKind::Min, dims);
  else if (p == 0)
    result = ops.sum(ops.cast(ops.compare(Predicate::Ne, v, 0), Ops::type(v).getElementType()), dims);
  else
    result = powerNorm(ops, v, p, dims);
  return tensorOf(ops.kept(ops.activation(result), x.shape(), dims, keepDim));
}

/// Subtracts the maximum first, so that e^x does not overflow; no gradient passes through the maximum. If the maximum
/// is infinite, subtracts nothing.
Tensor logsumexp(Tensor x, std::vector<int64_t> given, bool keepDim, Where where) {
  Ops ops("logsumexp", where);
  checkFloat("logsumexp", 3, x, where);
  const auto dims = reducedDims("logsumexp", x, given, where);
  Value v = ops.single(valueOf(x)), largest = ops.reduce(ReduceKind::Max, ops.detach(v), dims);
  Value infinite = ops.compare(Predicate::Eq, ops.abs(largest), INFINITY);
  largest = ops.select(infinite, ops.constantLike(largest, 0), largest);
  Value sum = ops.sum(ops.exp(ops.sub(v, ops.broadcastBack(largest, x.shape(), dims))), dims);
  return tensorOf(ops.kept(ops.activation(ops.add(ops.log(sum), largest)), x.shape(), dims, keepDim));
}

// ---- along one dimension ------------------------------------------------------------------------------------------

/// Product along `dim`: multiplies the two halves elementwise until one element remains.
static Value product(Ops &ops, Value x, int64_t dim) {
  Value rest;
  for (int64_t size = Ops::size(x, dim); size > 1; size /= 2) {
    if (size % 2) {
      Value last = ops.slice(x, dim, size - 1, size);
      rest = rest ? ops.mul(rest, last) : last;
    }
    x = ops.mul(ops.slice(x, dim, 0, size / 2), ops.slice(x, dim, size / 2, size / 2 * 2));
  }
  return rest ? ops.mul(x, rest) : x;
}

static Tensor prodAlong(Tensor x, int64_t dim, bool keepDim, Where where) {
  Ops ops("prod", where);
  Value result = ops.activation(product(ops, ops.single(valueOf(x)), dim));
  Shape shape = x.shape();
  if (!keepDim)
    shape.erase(shape.begin() + dim);
  return tensorOf(keepDim ? result : ops.reshape(result, shape));
}

Tensor prod(Tensor x, int64_t dim, bool keepDim, Where where) {
  Trace::current("prod", where);
  return prodAlong(x, normalDim("prod", 1, x, dim, where), keepDim, where);
}

Tensor prod(Tensor x, Where where) {
  Ops ops("prod", where);
  return prodAlong(tensorOf(ops.reshape(valueOf(x), {x.elements()})), 0, false, where);
}

/// The elements up to each place, combined. `combine` takes all elements, those `step` places earlier (as many fewer),
/// and `step`.
static Tensor scan(const char *name, Tensor x, int64_t dim, Where where,
                   llvm::function_ref<Value(Ops &ops, Value all, Value earlier, int64_t dim, int64_t step)> combine) {
  Ops ops(name, where);
  dim = normalDim(name, 1, x, dim, where);
  if (x.dtype() == DType::I1)
    failRule(name, 2, "the elements must be numbers (cast them)", {fact(x, "input")}, where);
  Value all = ops.single(valueOf(x));
  for (int64_t step = 1; step < x.size(dim); step *= 2)
    all = combine(ops, all, ops.slice(all, dim, 0, x.size(dim) - step), dim, step);
  return tensorOf(ops.activation(all));
}

Tensor cumsum(Tensor x, int64_t dim, Where where) {
  return scan("cumsum", x, dim, where, [](Ops &ops, Value all, Value earlier, int64_t dim, int64_t step) {
    return ops.add(all, ops.pad(earlier, dim, step, 0));
  });
}

/// As cumsum; the elements before the first are ones.
Tensor cumprod(Tensor x, int64_t dim, Where where) {
  return scan("cumprod", x, dim, where, [](Ops &ops, Value all, Value earlier, int64_t dim, int64_t step) {
    Value ones = ops.constantLike(ops.slice(all, dim, 0, step), 1);
    return ops.mul(all, ops.concat({ones, earlier}, dim));
  });
}

static Tensor truth(const char *name, ReduceKind kind, Tensor x, const std::vector<int64_t> &given, bool keepDim,
                    Where where) {
  Ops ops(name, where);
  const auto dims = reducedDims(name, x, given, where);
  Value v = x.dtype() == DType::I1 ? valueOf(x) : ops.compare(Predicate::Ne, valueOf(x), 0);
  Value found = ops.reduce(kind, ops.cast(v, DType::I32), dims);
  return tensorOf(ops.compare(Predicate::Ne, ops.kept(found, x.shape(), dims, keepDim), 0));
}

Tensor any(Tensor x, std::vector<int64_t> dims, bool keepDim, Where where) {
  return truth("any", ReduceKind::Max, x, dims, keepDim, where);
}
Tensor all(Tensor x, std::vector<int64_t> dims, bool keepDim, Where where) {
  return truth("all", ReduceKind::Min, x, dims, keepDim, where);
}

} // namespace cleave
