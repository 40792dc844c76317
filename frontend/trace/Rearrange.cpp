// Repeating, splitting, padding, and moving and adding slices, composed of reshape, broadcast, slice, concat and
// gather.
#include "cleave/Rearrange.h"
#include "frontend/trace/Compose.h"
#include "frontend/trace/Diagnose.h"
#include "frontend/trace/Indices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave {

using namespace ir;
using mlir::Value;

Tensor expand(Tensor x, Shape shape, Where where) {
  Ops ops("expand", where);
  const int64_t more = static_cast<int64_t>(shape.size()) - x.rank();
  if (more < 0)
    failRule("expand", 1, fmt::format("{} sizes for an input of rank {}", shape.size(), x.rank()), {fact(x, "input")},
             where);
  for (int64_t i = 0; i < static_cast<int64_t>(shape.size()); ++i) {
    const int64_t own = i < more ? 1 : x.size(i - more);
    if (shape[i] == -1 && i >= more)
      shape[i] = own;
    if (shape[i] < 1 || (own != 1 && own != shape[i]))
      failRule("expand", 2,
               fmt::format("dimension {} cannot become {}: only size 1 repeats", i < more ? i : i - more, shape[i]),
               {fact(x, "input")}, where);
  }
  return tensorOf(ops.broadcastTo(valueOf(x), shape));
}

Tensor repeat(Tensor x, std::vector<int64_t> counts, Where where) {
  Ops ops("repeat", where);
  const int64_t rank = static_cast<int64_t>(counts.size()), more = rank - x.rank();
  if (more < 0)
    failRule("repeat", 1, fmt::format("{} counts for an input of rank {}", rank, x.rank()), {fact(x, "input")}, where);
  Shape wide, result; // [count, size] for each repeated dimension
  std::vector<int64_t> from;
  Shape kept;
  for (int64_t i = 0; i < rank; ++i) {
    if (counts[i] < 1)
      failRule("repeat", 2, fmt::format("counts must be positive, found [{}]", fmt::join(counts, ", ")),
               {fact(x, "input")}, where);
    const int64_t size = i < more ? 1 : x.size(i - more);
    if (counts[i] > 1)
      wide.push_back(counts[i]);
    if (counts[i] == 1 || size > 1) {
      from.push_back(static_cast<int64_t>(wide.size()));
      wide.push_back(size);
      kept.push_back(size);
    }
    result.push_back(counts[i] * size);
  }
  Value v = ops.reshape(valueOf(x), kept);
  if (wide != kept)
    v = ops.broadcast(v, wide, from);
  return tensorOf(ops.reshape(v, result));
}

Tensor stack(const std::vector<Tensor> &tensors, int64_t dim, Where where) {
  Ops ops("stack", where);
  if (tensors.empty())
    failRule("stack", 1, "at least one tensor is needed, found none", {}, where);
  const Tensor first = tensors[0];
  const int64_t at = dim < 0 ? dim + first.rank() + 1 : dim;
  if (at < 0 || at > first.rank())
    failRule("stack", 2, fmt::format("dimension {} cannot be added to rank {}", dim, first.rank()),
             {fact(first, "first")}, where);
  Shape shape = first.shape();
  shape.insert(shape.begin() + at, 1);
  std::vector<Value> values;
  for (Tensor tensor : tensors) {
    if (tensor.shape() != first.shape() || tensor.dtype() != first.dtype())
      failRule("stack", 3, "shapes and element types must agree", {fact(first, "first"), fact(tensor, "other")}, where);
    values.push_back(ops.reshape(valueOf(tensor), shape));
  }
  return tensorOf(ops.concat(values, at));
}

static std::vector<Tensor> pieces(const char *name, Tensor x, const std::vector<int64_t> &sizes, int64_t dim,
                                  Where where) {
  Ops ops(name, where);
  std::vector<Tensor> result;
  int64_t start = 0;
  for (int64_t size : sizes) {
    result.push_back(tensorOf(ops.slice(valueOf(x), dim, start, start + size)));
    start += size;
  }
  return result;
}

/// Sizes of the pieces: `size` as often as it fits, then the remainder.
static std::vector<int64_t> equalSizes(int64_t all, int64_t size) {
  std::vector<int64_t> sizes(static_cast<size_t>(all / size), size);
  if (all % size)
    sizes.push_back(all % size);
  return sizes;
}

std::vector<Tensor> split(Tensor x, int64_t size, int64_t dim, Where where) {
  Trace::current("split", where);
  dim = normalDim("split", 1, x, dim, where);
  if (size < 1)
    failRule("split", 2, fmt::format("the size must be positive, found {}", size), {fact(x, "input")}, where);
  return pieces("split", x, equalSizes(x.size(dim), size), dim, where);
}

std::vector<Tensor> split(Tensor x, const std::vector<int64_t> &sizes, int64_t dim, Where where) {
  Trace::current("split", where);
  dim = normalDim("split", 1, x, dim, where);
  int64_t all = 0;
  bool positive = true;
  for (int64_t size : sizes) {
    all += size;
    positive &= size > 0;
  }
  if (!positive || all != x.size(dim))
    failRule("split", 2,
             fmt::format("sizes [{}] do not add up to dimension {}, which has size {}", fmt::join(sizes, ", "), dim,
                         x.size(dim)),
             {fact(x, "input")}, where);
  return pieces("split", x, sizes, dim, where);
}

std::vector<Tensor> chunk(Tensor x, int64_t count, int64_t dim, Where where) {
  Trace::current("chunk", where);
  dim = normalDim("chunk", 1, x, dim, where);
  if (count < 1)
    failRule("chunk", 2, fmt::format("the number of pieces must be positive, found {}", count), {fact(x, "input")},
             where);
  return pieces("chunk", x, equalSizes(x.size(dim), (x.size(dim) + count - 1) / count), dim, where);
}

static void checkPairs(Tensor x, const std::vector<int64_t> &amounts, Where where) {
  if (amounts.size() % 2 || static_cast<int64_t>(amounts.size()) > 2 * x.rank())
    failRule("pad", 1,
             fmt::format("found {} amounts for rank {}; expected one pair per dimension, starting with the last",
                         amounts.size(), x.rank()),
             {fact(x, "input")}, where);
}

Tensor pad(Tensor x, std::vector<int64_t> amounts, double value, Where where) {
  Ops ops("pad", where);
  checkPairs(x, amounts, where);
  Value v = valueOf(x);
  std::vector<int64_t> low(static_cast<size_t>(x.rank()), 0), high = low;
  for (size_t i = 0; i + 1 < amounts.size(); i += 2) {
    const int64_t dim = x.rank() - 1 - static_cast<int64_t>(i / 2), before = amounts[i], after = amounts[i + 1];
    if (x.size(dim) + std::min<int64_t>(before, 0) + std::min<int64_t>(after, 0) < 1)
      failRule("pad", 2, fmt::format("dimension {} would be empty after padding by {} and {}", dim, before, after),
               {fact(x, "input")}, where);
    v = ops.slice(v, dim, std::max<int64_t>(-before, 0), x.size(dim) - std::max<int64_t>(-after, 0));
    low[dim] = std::max<int64_t>(before, 0);
    high[dim] = std::max<int64_t>(after, 0);
  }
  if (llvm::all_of(low, [](int64_t n) { return n == 0; }) && llvm::all_of(high, [](int64_t n) { return n == 0; }))
    return tensorOf(v);
  const auto around = [&](Value inner) {
    return ops.op<PadOp>(inner, llvm::ArrayRef<int64_t>(low), llvm::ArrayRef<int64_t>(high)).getResult();
  };
  Value padded = around(v);
  if (value == 0)
    return tensorOf(padded);
  mlir::RankedTensorType mask = Ops::type(v).clone(ops.trace.element(DType::I1));
  Value inside = around(ops.constant(mask, 1));
  return tensorOf(ops.select(inside, padded, ops.constantLike(padded, value)));
}

Tensor flip(Tensor x, std::vector<int64_t> dims, Where where) {
  Ops ops("flip", where);
  Value v = valueOf(x);
  if (dims.empty())
    return x;
  for (int64_t dim : reducedDims("flip", x, dims, where)) {
    Value place = ops.iota(x.shape(), dim);
    v = ops.gather(v, dim, ops.sub(ops.constantLike(place, static_cast<double>(x.size(dim) - 1)), place));
  }
  return tensorOf(v);
}

// ---- elements of the input at computed places -----------------------------------------------------------------------

/// The elements of a dimension of size `size` that a reflected or replicated dimension has at the places -before, 1 -
/// before, ...
static Value paddedFrom(Ops &ops, Value place, PadMode mode, int64_t size) {
  const auto number = [&](int64_t n) { return ops.constantLike(place, static_cast<double>(n)); };
  Value zero = number(0);
  if (mode == PadMode::Replicate)
    return ops.min(ops.max(place, zero), number(size - 1));
  Value start = ops.max(place, ops.sub(zero, place));
  return ops.min(start, ops.sub(number(2 * (size - 1)), start));
}

/// Elements of a dimension for which slices are concatenated, which fuses with other ops; more are gathered.
constexpr int64_t mostSlices = 16;
static Value paddedWithSlices(Ops &ops, Value v, int64_t dim, int64_t before, int64_t after, PadMode mode) {
  const int64_t size = Ops::shape(v)[dim];
  if (mode == PadMode::Circular) {
    std::vector<Value> parts{v};
    if (before)
      parts.insert(parts.begin(), ops.slice(v, dim, size - before, size));
    if (after)
      parts.push_back(ops.slice(v, dim, 0, after));
    return ops.concat(parts, dim);
  }
  std::vector<Value> parts;
  const auto add = [&](int64_t at) { parts.push_back(ops.slice(v, dim, at, at + 1)); };
  for (int64_t i = before; i > 0; --i)
    add(mode == PadMode::Reflect ? i : 0);
  parts.push_back(v);
  for (int64_t i = 1; i <= after; ++i)
    add(mode == PadMode::Reflect ? size - 1 - i : size - 1);
  return ops.concat(parts, dim);
}

Tensor pad(Tensor x, std::vector<int64_t> amounts, PadMode mode, Where where) {
  Ops ops("pad", where);
  checkPairs(x, amounts, where);
  Value v = valueOf(x);
  for (size_t i = 0; i + 1 < amounts.size(); i += 2) {
    const int64_t dim = x.rank() - 1 - static_cast<int64_t>(i / 2), size = x.size(dim), before = amounts[i],
                  after = amounts[i + 1];
    const int64_t most = mode == PadMode::Reflect ? size - 1 : mode == PadMode::Circular ? size : INT64_MAX;
    if (std::min(before, after) < 0 || std::max(before, after) > most)
      failRule("pad", 2,
               fmt::format("dimension {} of size {} cannot be padded by {} and {} with its own elements", dim, size,
                           before, after),
               {fact(x, "input")}, where);
    if (before + after == 0)
      continue;
    if (mode == PadMode::Circular || before + after <= mostSlices) {
      v = paddedWithSlices(ops, v, dim, before, after, mode);
      continue;
    }
    Shape shape = Ops::shape(v);
    shape[dim] += before + after;
    Value place = ops.iota(shape, dim);
    place = ops.sub(place, ops.constantLike(place, static_cast<double>(before)));
    v = ops.gather(v, dim, paddedFrom(ops, place, mode, size));
  }
  return tensorOf(v);
}

Tensor roll(Tensor x, std::vector<int64_t> shifts, std::vector<int64_t> dims, Where where) {
  Ops ops("roll", where);
  if (shifts.size() != dims.size())
    failRule("roll", 2, fmt::format("found {} shifts for {} dimensions", shifts.size(), dims.size()),
             {fact(x, "input")}, where);
  if (dims.empty())
    return x;
  reducedDims("roll", x, dims, where);
  Value v = valueOf(x);
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t dim = normalDim("roll", 1, x, dims[i], where), size = x.size(dim);
    const int64_t kept = size - (shifts[i] % size + size) % size; // elements before those that enter at the start
    if (kept != size)
      v = ops.concat({ops.slice(v, dim, kept, size), ops.slice(v, dim, 0, kept)}, dim);
  }
  return tensorOf(v);
}

/// Repeats a vector of i32 along all dimensions of `shape` but `dim`, whose size it sets.
static Value indexAlong(Ops &ops, Tensor index, Shape shape, int64_t dim) {
  shape[dim] = index.size(0);
  return ops.along(valueOf(index), shape, dim);
}

Tensor indexSelect(Tensor x, int64_t dim, Tensor index, Outside outside, Where where) {
  Ops ops("indexSelect", where);
  dim = normalDim("indexSelect", 1, x, dim, where);
  if (index.rank() != 1 || index.dtype() != DType::I32)
    failRule("indexSelect", 2, "the index must be a vector of i32", {fact(x, "input"), fact(index, "index")}, where);
  if (outside == Outside::Error)
    readIndices(ops, "indexSelect", valueOf(index), {.below = x.size(dim)});
  return tensorOf(ops.gather(valueOf(x), dim, indexAlong(ops, index, x.shape(), dim)));
}

static void checkAdded(Ops &ops, const char *name, Tensor x, int64_t dim, Tensor index, Tensor source,
                       Outside outside) {
  const Facts facts = {fact(x, "input"), fact(index, "index"), fact(source, "source")};
  if (index.dtype() != DType::I32)
    failRule(name, 4, "the index must be i32", facts, ops.where);
  if (x.dtype() != source.dtype() || !isFloat(x))
    failRule(name, 5, "input and source must have one float type", facts, ops.where);
  if (outside == Outside::Error)
    readIndices(ops, name, valueOf(index), {.below = x.size(dim)});
}

/// x plus the sums of the source's elements at the places that `index` has along `dim`. The index has the source's
/// shape, which along other dimensions is at most x's.
static Tensor added(Ops &ops, Tensor x, int64_t dim, Value index, Value source) {
  Shape shape = Ops::shape(source);
  shape[dim] = x.size(dim);
  Value sums =
      ops.op<ScatterAddOp>(ops.trace.type(shape, typeOf(x).getElementType()), source, index, static_cast<uint64_t>(dim))
          .getResult();
  for (int64_t d = 0; d < x.rank(); ++d)
    sums = ops.pad(sums, d, 0, x.size(d) - shape[d]);
  return tensorOf(ops.add(valueOf(x), sums));
}

Tensor scatterAdd(Tensor x, int64_t dim, Tensor index, Tensor source, Outside outside, Where where) {
  Ops ops("scatterAdd", where);
  const Facts facts = {fact(x, "input"), fact(index, "index"), fact(source, "source")};
  if (x.rank() != source.rank() || x.rank() != index.rank())
    failRule("scatterAdd", 1, "the ranks must agree", facts, where);
  dim = normalDim("scatterAdd", 2, x, dim, where);
  checkAdded(ops, "scatterAdd", x, dim, index, source, outside);
  Value from = valueOf(source);
  for (int64_t d = 0; d < x.rank(); ++d) {
    const int64_t most = d == dim ? source.size(d) : std::min(x.size(d), source.size(d));
    if (index.size(d) > most)
      failRule("scatterAdd", 3,
               fmt::format("dimension {} of the index has size {}, only {} are possible", d, index.size(d), most),
               facts, where);
    from = ops.slice(from, d, 0, index.size(d));
  }
  return added(ops, x, dim, valueOf(index), from);
}

Tensor indexAdd(Tensor x, int64_t dim, Tensor index, Tensor source, Outside outside, Where where) {
  Ops ops("indexAdd", where);
  dim = normalDim("indexAdd", 2, x, dim, where);
  if (x.rank() != source.rank() || index.shape() != Shape{source.size(dim)})
    failRule("indexAdd", 1, "the ranks must agree, and the index must be a vector with one element for each slice",
             {fact(x, "input"), fact(index, "index"), fact(source, "source")}, where);
  Shape slices = x.shape();
  slices[dim] = source.size(dim);
  if (slices != source.shape())
    failRule("indexAdd", 3, fmt::format("input and source must agree in all dimensions except {}", dim),
             {fact(x, "input"), fact(source, "source")}, where);
  checkAdded(ops, "indexAdd", x, dim, index, source, outside);
  return added(ops, x, dim, indexAlong(ops, index, source.shape(), dim), valueOf(source));
}

} // namespace cleave
