// Ops that depend on the order of elements: argmax, argmin, sorting. NaN is the extreme of its row for all that look
// for one extreme, and counts as larger than infinity in a sorted order, as in PyTorch. They find places and then
// gather the original elements.
#include "cleave/Reduce.h"
#include "frontend/trace/Compose.h"
#include "frontend/trace/Diagnose.h"

#include <cmath>
#include <fmt/format.h>

namespace cleave {

using namespace ir;
using mlir::Value;

/// Index of the first maximum or minimum of x along `dim`, which is kept with size 1; of the first NaN if there is one:
/// the extreme of such a row is NaN, which equals nothing.
static Value extremePlace(Ops &ops, ReduceKind kind, Value x, int64_t dim) {
  const Shape shape = Ops::shape(x);
  const bool mayBeNan = isFloat(tensorOf(x));
  x = mayBeNan ? ops.detach(x) : x;
  Value best = ops.reduce(kind, x, {dim});
  Value hit = ops.compare(Predicate::Eq, x, ops.broadcastBack(best, shape, {dim}));
  if (mayBeNan)
    hit = ops.max(hit, ops.compare(Predicate::Ne, x, x));
  Value places = ops.iota(shape, dim);
  Value candidates = ops.select(hit, places, ops.constantLike(places, static_cast<double>(shape[dim] - 1)));
  return ops.kept(ops.reduce(ReduceKind::Min, candidates, {dim}), shape, {dim}, true);
}

/// `kept`, which has size 1 along `dim`, with or without that dimension.
static Tensor result(Ops &ops, Value kept, int64_t dim, bool keepDim) {
  Shape shape = Ops::shape(kept);
  shape.erase(shape.begin() + dim);
  return tensorOf(keepDim ? kept : ops.reshape(kept, shape));
}

static Tensor extreme(const char *name, ReduceKind kind, Tensor x, int64_t dim, bool keepDim, Where where) {
  Ops ops(name, where);
  dim = normalDim(name, 1, x, dim, where);
  return result(ops, extremePlace(ops, kind, valueOf(x), dim), dim, keepDim);
}

static Tensor flat(const char *name, Tensor x, Where where) {
  return tensorOf(Ops(name, where).reshape(valueOf(x), {x.elements()}));
}

Tensor argmax(Tensor x, int64_t dim, bool keepDim, Where where) {
  return extreme("argmax", ReduceKind::Max, x, dim, keepDim, where);
}
Tensor argmax(Tensor x, Where where) { return argmax(flat("argmax", x, where), 0, false, where); }
Tensor argmin(Tensor x, int64_t dim, bool keepDim, Where where) {
  return extreme("argmin", ReduceKind::Min, x, dim, keepDim, where);
}
Tensor argmin(Tensor x, Where where) { return argmin(flat("argmin", x, where), 0, false, where); }

static Sorted extremeWithIndices(const char *name, ReduceKind kind, Tensor x, int64_t dim, bool keepDim, Where where) {
  Ops ops(name, where);
  dim = normalDim(name, 1, x, dim, where);
  Value place = extremePlace(ops, kind, valueOf(x), dim);
  return {result(ops, ops.gather(valueOf(x), dim, place), dim, keepDim), result(ops, place, dim, keepDim)};
}

Sorted maxWithIndices(Tensor x, int64_t dim, bool keepDim, Where where) {
  return extremeWithIndices("maxWithIndices", ReduceKind::Max, x, dim, keepDim, where);
}
Sorted minWithIndices(Tensor x, int64_t dim, bool keepDim, Where where) {
  return extremeWithIndices("minWithIndices", ReduceKind::Min, x, dim, keepDim, where);
}

/// What elements are ordered by: the value, then the place. NaN has the value infinity and a place beyond all others,
/// or before all if the order is descending, so that no other comparison is needed.
struct Keys {
  Value value, place; // place: of NaN, `beyond` more than the element's index
  double beyond = 0;
};

/// Keys along the last dimension.
static Keys keysOf(Ops &ops, Value x, bool descending) {
  const Shape shape = Ops::shape(x);
  const auto size = static_cast<double>(shape.back());
  Keys keys{x, ops.iota(shape, static_cast<int64_t>(shape.size()) - 1), descending ? -size : size};
  if (!isFloat(tensorOf(x)))
    return keys;
  x = ops.detach(x);
  Value nan = ops.compare(Predicate::Ne, x, x);
  keys.value = ops.select(nan, ops.constantLike(x, INFINITY), x);
  keys.place = ops.select(nan, ops.add(keys.place, ops.constantLike(keys.place, keys.beyond)), keys.place);
  return keys;
}

/// Indices of the first `count` elements in order along the last dimension. An element's rank is the number of elements
/// before it; index r of the result is the element with rank r.
static Value orderLast(Ops &ops, const Keys &keys, int64_t count, bool descending) {
  Shape shape = Ops::shape(keys.value), pairs = shape;
  const int64_t last = static_cast<int64_t>(shape.size()) - 1, size = shape[last];
  pairs.push_back(size); // [..., element, other]
  const auto element = [&](Value v) { return ops.broadcastBack(v, pairs, {last + 1}); };
  const auto other = [&](Value v) { return ops.broadcastBack(v, pairs, {last}); };
  Value better = ops.compare(descending ? Predicate::Gt : Predicate::Lt, other(keys.value), element(keys.value));
  Value earlier = ops.compare(Predicate::Lt, other(keys.place), element(keys.place));
  Value equal = ops.compare(Predicate::Eq, other(keys.value), element(keys.value));
  Value rank = ops.sum(ops.cast(ops.max(better, ops.min(equal, earlier)), DType::I32), {last + 1});

  Shape slots = shape;
  slots[last] = count;
  slots.push_back(size); // [..., rank, element]
  Value hit = ops.compare(Predicate::Eq, ops.broadcastBack(rank, slots, {last}), ops.iota(slots, last));
  Value places = ops.iota(slots, last + 1);
  return ops.sum(ops.select(hit, places, ops.constantLike(places, 0)), {last + 1});
}

/// Indices of the best `count` elements as orderLast returns them, found by selection: takes the best of the remaining
/// elements `count` times.
static Value bestLast(Ops &ops, const Keys &keys, int64_t count, bool largest) {
  const Shape shape = Ops::shape(keys.value);
  const int64_t last = static_cast<int64_t>(shape.size()) - 1;
  Value none = ops.constantLike(keys.place, 2 * static_cast<double>(shape[last])); // beyond all places
  std::vector<Value> found;
  Value left; // i1: not selected yet
  for (int64_t i = 0; i < count; ++i) {
    Value gone = ops.constantLike(keys.value, largest ? -INFINITY : INFINITY);
    Value candidates = left ? ops.select(left, keys.value, gone) : keys.value;
    Value best = ops.reduce(largest ? ReduceKind::Max : ReduceKind::Min, candidates, {last});
    Value hit = ops.compare(Predicate::Eq, candidates, ops.broadcastBack(best, shape, {last}));
    hit = left ? ops.min(hit, left) : hit; // excludes selected elements, whose candidates are infinite
    Value place = ops.reduce(ReduceKind::Min, ops.select(hit, keys.place, none), {last});
    Value other = ops.compare(Predicate::Ne, keys.place, ops.broadcastBack(place, shape, {last}));
    left = left ? ops.min(left, other) : other;
    found.push_back(ops.kept(place, shape, {last}, true));
  }
  Value places = ops.concat(found, last);
  Value nan = largest ? ops.compare(Predicate::Lt, places, 0)
                      : ops.compare(Predicate::Ge, places, static_cast<double>(shape[last]));
  return ops.select(nan, ops.sub(places, ops.constantLike(places, keys.beyond)), places);
}

/// Values and indices of the first `count` elements of x in order along `dim`.
static Sorted ordered(Ops &ops, Tensor x, int64_t dim, int64_t count, bool descending) {
  constexpr int64_t fewAtATime = 8;
  const int64_t last = x.rank() - 1;
  const Keys keys = keysOf(ops, ops.swap(valueOf(x), dim, last), descending);
  const bool few = isFloat(x) && count <= fewAtATime && count * 4 < x.size(dim);
  Value places = few ? bestLast(ops, keys, count, descending) : orderLast(ops, keys, count, descending);
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
