// Ops that depend on the order of elements: argmax, argmin, sorting. They compare keys in which NaN is replaced by
// infinity (argmin: -infinity), and then gather the original elements.
#include "cleave/Reduce.h"
#include "frontend/trace/Compose.h"
#include "frontend/trace/Diagnose.h"

#include <cmath>
#include <fmt/format.h>

namespace cleave {

using namespace ir;
using mlir::Value;

/// The key for comparisons: x with NaN replaced by `nan`, without gradient.
static Value keyOf(Ops &ops, Value x, double nan = INFINITY) {
  if (!isFloat(tensorOf(x)))
    return x;
  x = ops.detach(x);
  return ops.select(ops.compare(Predicate::Ne, x, x), ops.constantLike(x, nan), x);
}

/// Index of the first maximum or minimum of `key` along `dim`, which is kept with size 1.
static Value firstPlace(Ops &ops, Value key, int64_t dim, bool largest) {
  const Shape shape = Ops::shape(key);
  Value best = ops.reduce(largest ? ReduceKind::Max : ReduceKind::Min, key, {dim});
  Value hit = ops.compare(Predicate::Eq, key, ops.broadcastBack(best, shape, {dim}));
  Value places = ops.iota(shape, dim);
  Value candidates = ops.select(hit, places, ops.constantLike(places, static_cast<double>(shape[dim] - 1)));
  return ops.kept(ops.reduce(ReduceKind::Min, candidates, {dim}), shape, {dim}, true);
}

static Tensor extreme(const char *name, Tensor x, int64_t dim, bool keepDim, bool largest, Where where) {
  Ops ops(name, where);
  dim = normalDim(name, 1, x, dim, where);
  Value place = firstPlace(ops, keyOf(ops, valueOf(x), largest ? INFINITY : -INFINITY), dim, largest);
  Shape shape = x.shape();
  shape.erase(shape.begin() + dim);
  return tensorOf(keepDim ? place : ops.reshape(place, shape));
}

static Tensor flat(const char *name, Tensor x, Where where) {
  return tensorOf(Ops(name, where).reshape(valueOf(x), {x.elements()}));
}

Tensor argmax(Tensor x, int64_t dim, bool keepDim, Where where) {
  return extreme("argmax", x, dim, keepDim, true, where);
}
Tensor argmax(Tensor x, Where where) { return extreme("argmax", flat("argmax", x, where), 0, false, true, where); }
Tensor argmin(Tensor x, int64_t dim, bool keepDim, Where where) {
  return extreme("argmin", x, dim, keepDim, false, where);
}
Tensor argmin(Tensor x, Where where) { return extreme("argmin", flat("argmin", x, where), 0, false, false, where); }

/// The maximum of a row with NaN is NaN, which equals nothing; there, the elements that are NaN are candidates.
static Sorted extremeWithIndices(const char *name, ReduceKind kind, Tensor x, int64_t dim, bool keepDim, Where where) {
  Ops ops(name, where);
  dim = normalDim(name, 1, x, dim, where);
  Shape shape = x.shape();
  Value v = isFloat(x) ? ops.detach(valueOf(x)) : valueOf(x);
  Value best = ops.reduce(kind, v, {dim});
  Value hit = ops.compare(Predicate::Eq, v, ops.broadcastBack(best, shape, {dim}));
  if (isFloat(x))
    hit = ops.max(hit, ops.compare(Predicate::Ne, v, v));
  Value places = ops.iota(shape, dim);
  Value candidates = ops.select(hit, places, ops.constantLike(places, static_cast<double>(shape[dim] - 1)));
  Value place = ops.kept(ops.reduce(ReduceKind::Min, candidates, {dim}), shape, {dim}, true);
  Value value = ops.gather(valueOf(x), dim, place);
  shape.erase(shape.begin() + dim);
  if (keepDim)
    return {tensorOf(value), tensorOf(place)};
  return {tensorOf(ops.reshape(value, shape)), tensorOf(ops.reshape(place, shape))};
}

Sorted maxWithIndices(Tensor x, int64_t dim, bool keepDim, Where where) {
  return extremeWithIndices("maxWithIndices", ReduceKind::Max, x, dim, keepDim, where);
}
Sorted minWithIndices(Tensor x, int64_t dim, bool keepDim, Where where) {
  return extremeWithIndices("minWithIndices", ReduceKind::Min, x, dim, keepDim, where);
}

/// Indices of the first `count` elements in stable order along the last dimension. An element's rank is the number of
/// elements before it; index r of the result is the element with rank r.
static Value orderLast(Ops &ops, Value key, int64_t count, bool descending) {
  Shape shape = Ops::shape(key), pairs = shape;
  const int64_t last = static_cast<int64_t>(shape.size()) - 1, size = shape[last];
  pairs.push_back(size); // [..., element, other]
  Value element = ops.broadcastBack(key, pairs, {last + 1}), other = ops.broadcastBack(key, pairs, {last});
  Value better = ops.compare(descending ? Predicate::Gt : Predicate::Lt, other, element);
  Value earlier = ops.compare(Predicate::Lt, ops.iota(pairs, last + 1), ops.iota(pairs, last));
  Value before = ops.max(better, ops.min(ops.compare(Predicate::Eq, other, element), earlier));
  Value rank = ops.sum(ops.cast(before, DType::I32), {last + 1});

  Shape slots = shape;
  slots[last] = count;
  slots.push_back(size); // [..., rank, element]
  Value hit = ops.compare(Predicate::Eq, ops.broadcastBack(rank, slots, {last}), ops.iota(slots, last));
  Value places = ops.iota(slots, last + 1);
  return ops.sum(ops.select(hit, places, ops.constantLike(places, 0)), {last + 1});
}

/// Indices of the best `count` elements as orderLast returns them, found by selection: takes the best of the remaining
/// elements `count` times.
static Value bestLast(Ops &ops, Value key, int64_t count, bool largest) {
  const Shape shape = Ops::shape(key);
  const int64_t last = static_cast<int64_t>(shape.size()) - 1;
  std::vector<Value> found;
  Value left; // i1: not selected yet
  for (int64_t i = 0; i < count; ++i) {
    Value gone = ops.constantLike(key, largest ? -INFINITY : INFINITY);
    Value candidates = left ? ops.select(left, key, gone) : key;
    Value best = ops.reduce(largest ? ReduceKind::Max : ReduceKind::Min, candidates, {last});
    Value hit = ops.compare(Predicate::Eq, candidates, ops.broadcastBack(best, shape, {last}));
    hit = left ? ops.min(hit, left) : hit; // excludes selected elements, whose candidates are infinite
    Value places = ops.iota(shape, last);
    Value first = ops.select(hit, places, ops.constantLike(places, static_cast<double>(shape[last])));
    Value place = ops.reduce(ReduceKind::Min, first, {last});
    Value other = ops.compare(Predicate::Ne, places, ops.broadcastBack(place, shape, {last}));
    left = left ? ops.min(left, other) : other;
    found.push_back(ops.kept(place, shape, {last}, true));
  }
  return ops.concat(found, last);
}

/// Values and indices of the first `count` elements of x in order along `dim`.
static Sorted ordered(Ops &ops, Tensor x, int64_t dim, int64_t count, bool descending) {
  constexpr int64_t fewAtATime = 8;
  const int64_t last = x.rank() - 1;
  Value key = ops.swap(keyOf(ops, valueOf(x)), dim, last);
  const bool few = isFloat(x) && count <= fewAtATime && count * 4 < x.size(dim);
  Value places = few ? bestLast(ops, key, count, descending) : orderLast(ops, key, count, descending);
  places = ops.swap(places, dim, last);
  ops.trace.ranges[places.getAsOpaquePointer()] = {0, x.size(dim) - 1};
  return {tensorOf(ops.gather(valueOf(x), dim, places)), tensorOf(places)};
}

Sorted sort(Tensor x, int64_t dim, bool descending, Where where) {
  Ops ops("sort", where);
  dim = normalDim("sort", 1, x, dim, where);
  return ordered(ops, x, dim, x.size(dim), descending);
}

Sorted topk(Tensor x, int64_t k, int64_t dim, bool largest, Where where) {
  Ops ops("topk", where);
  dim = normalDim("topk", 1, x, dim, where);
  if (k < 1 || k > x.size(dim))
    failRule("topk", 2, fmt::format("cannot take the top {} of dimension {}, which has size {}", k, dim, x.size(dim)),
             {fact(x, "input")}, where);
  return ordered(ops, x, dim, k, largest);
}

} // namespace cleave
