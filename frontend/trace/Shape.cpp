// Reductions, shape functions, constants and markers.
#include "frontend/trace/Compose.h"
#include "frontend/trace/Diagnose.h"
#include "frontend/trace/Indices.h"
#include "frontend/trace/Trace.h"
#include "runtime/base/Mesh.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <numeric>

namespace cleave {

using namespace ir;

// ---- reductions ---------------------------------------------------------------------------------------------------

std::vector<int64_t> reducedDims(const char *name, Tensor x, std::vector<int64_t> dims, Where where) {
  if (dims.empty()) {
    dims.resize(static_cast<size_t>(x.rank()));
    std::iota(dims.begin(), dims.end(), 0);
    return dims;
  }
  for (int64_t &dim : dims)
    dim = normalDim(name, 1, x, dim, where);
  std::sort(dims.begin(), dims.end());
  if (std::adjacent_find(dims.begin(), dims.end()) != dims.end())
    failRule(name, 1, fmt::format("dimensions must differ, found {}", fmt::join(dims, ", ")), {fact(x, "input")},
             where);
  return dims;
}

static Tensor reduce(const char *name, ReduceKind kind, Tensor x, const std::vector<int64_t> &given, bool keepDim,
                     Where where) {
  Ops ops(name, where);
  const std::vector<int64_t> dims = reducedDims(name, x, given, where);
  mlir::Value value = ops.reduce(kind, valueOf(x), dims);
  if (!keepDim)
    return tensorOf(value);
  Shape shape = x.shape();
  for (int64_t dim : dims)
    shape[dim] = 1;
  return reshape(tensorOf(value), shape, where);
}

Tensor sum(Tensor x, std::vector<int64_t> dims, bool keepDim, Where where) {
  return reduce("sum", ReduceKind::Sum, x, dims, keepDim, where);
}
Tensor max(Tensor x, std::vector<int64_t> dims, bool keepDim, Where where) {
  return reduce("max", ReduceKind::Max, x, dims, keepDim, where);
}
Tensor min(Tensor x, std::vector<int64_t> dims, bool keepDim, Where where) {
  return reduce("min", ReduceKind::Min, x, dims, keepDim, where);
}

Tensor mean(Tensor x, std::vector<int64_t> dims, bool keepDim, Where where) {
  Trace::current("mean", where);
  Tensor total = reduce("mean", ReduceKind::Sum, x, dims, keepDim, where);
  const double count = static_cast<double>(x.elements()) / static_cast<double>(std::max<int64_t>(1, total.elements()));
  return Operand(total, where) * (1.0 / count);
}

// ---- shapes -------------------------------------------------------------------------------------------------------

Tensor reshape(Tensor x, Shape shape, Where where) {
  Ops ops("reshape", where);
  int64_t known = 1, open = -1;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == -1 && open < 0)
      open = static_cast<int64_t>(i);
    else if (shape[i] < 1)
      failRule("reshape", 2,
               fmt::format("sizes must be positive and at most one -1, found [{}]", fmt::join(shape, ", ")),
               {fact(x, "input")}, where);
    else
      known *= shape[i];
  }
  if (open >= 0 && x.elements() % known == 0)
    shape[open] = x.elements() / known;
  else if (open >= 0 || known != x.elements())
    failRule("reshape", 1,
             fmt::format("the input has {} elements, shape [{}] {} {}", x.elements(), fmt::join(shape, ", "),
                         open >= 0 ? "needs a multiple of" : "has", known),
             {fact(x, "input")}, where);
  return tensorOf(ops.reshape(valueOf(x), shape));
}

Tensor flatten(Tensor x, int64_t start, int64_t end, Where where) {
  start = normalDim("flatten", 1, x, start, where);
  end = normalDim("flatten", 1, x, end, where);
  if (start > end)
    failRule("flatten", 1, fmt::format("the first dimension {} must not be after the last {}", start, end),
             {fact(x, "input")}, where);
  Shape shape = x.shape(), flat(shape.begin(), shape.begin() + start);
  flat.push_back(std::accumulate(shape.begin() + start, shape.begin() + end + 1, int64_t(1), std::multiplies<>()));
  flat.insert(flat.end(), shape.begin() + end + 1, shape.end());
  return reshape(x, flat, where);
}

static Tensor permuted(const char *name, Tensor x, const std::vector<int64_t> &dims, Where where) {
  Ops ops(name, where);
  if (std::is_sorted(dims.begin(), dims.end()))
    return x;
  return tensorOf(ops.op<TransposeOp>(valueOf(x), llvm::ArrayRef<int64_t>(dims)).getResult());
}

Tensor transpose(Tensor x, int64_t a, int64_t b, Where where) {
  Trace::current("transpose", where);
  std::vector<int64_t> dims(static_cast<size_t>(x.rank()));
  std::iota(dims.begin(), dims.end(), 0);
  std::swap(dims[normalDim("transpose", 1, x, a, where)], dims[normalDim("transpose", 1, x, b, where)]);
  return permuted("transpose", x, dims, where);
}

Tensor permute(Tensor x, std::vector<int64_t> dims, Where where) {
  std::vector<int64_t> found = dims;
  for (int64_t &dim : found)
    dim = normalDim("permute", 1, x, dim, where);
  std::vector<int64_t> sorted = found;
  std::sort(sorted.begin(), sorted.end());
  if (static_cast<int64_t>(dims.size()) != x.rank() || std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
    failRule("permute", 1, fmt::format("[{}] is not a permutation of {} dimensions", fmt::join(dims, ", "), x.rank()),
             {fact(x, "input")}, where);
  return permuted("permute", x, found, where);
}

static Tensor sliced(const char *name, Tensor x, int64_t dim, int64_t start, int64_t end, Where where) {
  Ops ops(name, where);
  dim = normalDim(name, 1, x, dim, where);
  const int64_t size = x.size(dim), from = start < 0 ? start + size : start, to = end < 0 ? end + size : end;
  if (from < 0 || from >= to || to > size)
    failRule(name, 2,
             fmt::format("elements [{}, {}) are not within dimension {}, which has size {}", start, end, dim, size),
             {fact(x, "input")}, where);
  std::vector<int64_t> starts(static_cast<size_t>(x.rank()), 0);
  Shape sizes = x.shape();
  if (from == 0 && to == size)
    return x;
  starts[dim] = from;
  sizes[dim] = to - from;
  return tensorOf(
      ops.op<SliceOp>(valueOf(x), llvm::ArrayRef<int64_t>(starts), llvm::ArrayRef<int64_t>(sizes)).getResult());
}

Tensor slice(Tensor x, int64_t dim, int64_t start, int64_t end, Where where) {
  return sliced("slice", x, dim, start, end, where);
}

Tensor select(Tensor x, int64_t dim, int64_t index, Where where) {
  dim = normalDim("select", 1, x, dim, where);
  const int64_t from = index < 0 ? index + x.size(dim) : index;
  return squeeze(sliced("select", x, dim, from, from + 1, where), dim, where);
}

Tensor concat(const std::vector<Tensor> &tensors, int64_t dim, Where where) {
  Ops ops("concat", where);
  if (tensors.empty())
    failRule("concat", 1, "at least one tensor is needed, found none", {}, where);
  dim = normalDim("concat", 2, tensors[0], dim, where);
  std::vector<mlir::Value> values;
  for (Tensor tensor : tensors) {
    Shape a = tensors[0].shape(), b = tensor.shape();
    if (a.size() == b.size())
      a[dim] = b[dim] = 0;
    if (a != b || tensor.dtype() != tensors[0].dtype())
      failRule("concat", 3, fmt::format("tensors must agree in all dimensions except {}", dim),
               {fact(tensors[0], "first"), fact(tensor, "other")}, where);
    values.push_back(valueOf(tensor));
  }
  return tensorOf(ops.op<ConcatOp>(mlir::ValueRange(values), static_cast<uint64_t>(dim)).getResult());
}

Tensor gather(Tensor x, int64_t dim, Tensor index, Outside outside, Where where) {
  Ops ops("gather", where);
  const Facts facts = {fact(x, "input"), fact(index, "index")};
  if (x.rank() != index.rank())
    failRule("gather", 1, fmt::format("the input's rank is {}, the index's {}", x.rank(), index.rank()), facts, where);
  dim = normalDim("gather", 2, x, dim, where);
  if (index.dtype() != DType::I32)
    failRule("gather", 4, "the index must be i32", facts, where);
  if (outside == Outside::Error)
    readIndices(ops, "gather", valueOf(index), {.below = x.size(dim)});
  mlir::Value from = valueOf(x);
  for (int64_t d = 0; d < x.rank(); ++d) {
    if (d == dim)
      continue;
    if (index.size(d) > x.size(d))
      failRule("gather", 3,
               fmt::format("dimension {} of the index has size {}, that of the input {}", d, index.size(d), x.size(d)),
               facts, where);
    from = ops.slice(from, d, 0, index.size(d));
  }
  return tensorOf(ops.gather(from, dim, valueOf(index)));
}

Tensor unsqueeze(Tensor x, int64_t dim, Where where) {
  Trace::current("unsqueeze", where);
  Shape shape = x.shape();
  const int64_t at = dim < 0 ? dim + x.rank() + 1 : dim;
  if (at < 0 || at > x.rank())
    failRule("unsqueeze", 1, fmt::format("dimension {} cannot be added to rank {}", dim, x.rank()), {fact(x, "input")},
             where);
  shape.insert(shape.begin() + at, 1);
  return reshape(x, shape, where);
}

Tensor squeeze(Tensor x, int64_t dim, Where where) {
  Trace::current("squeeze", where);
  dim = normalDim("squeeze", 1, x, dim, where);
  Shape shape = x.shape();
  if (shape[dim] != 1)
    failRule("squeeze", 2, fmt::format("dimension {} has size {}, not 1", dim, shape[dim]), {fact(x, "input")}, where);
  shape.erase(shape.begin() + dim);
  return reshape(x, shape, where);
}

// ---- constants ----------------------------------------------------------------------------------------------------

Tensor arange(int64_t count, Where where) {
  Ops ops("arange", where);
  if (count < 1)
    failRule("arange", 1, fmt::format("the count must be positive, found {}", count), {}, where);
  return tensorOf(ops.iota({count}, 0));
}

Tensor full(Shape shape, double value, DType type, Where where) {
  Ops ops("full", where);
  for (int64_t size : shape)
    if (size < 1)
      failRule("full", 1, fmt::format("sizes must be positive, found [{}]", fmt::join(shape, ", ")), {}, where);
  return tensorOf(ops.constant(ops.trace.type(shape, ops.trace.element(type)), value));
}

// ---- marks --------------------------------------------------------------------------------------------------------

static bool knownEntry(const std::string &entry) {
  if (entry.empty() || entry == wholeDimension)
    return true;
  for (size_t at = 0;; ++at) {
    const size_t plus = entry.find('+', at);
    const std::string axis = entry.substr(at, plus - at);
    if (!splitsTensors(axis))
      return false;
    if (plus == std::string::npos)
      return true;
    at = plus;
  }
}

cleave::internal::PerMicrobatch::PerMicrobatch(Where where) { ++Trace::current("perMicrobatch", where).perMicrobatch; }
cleave::internal::PerMicrobatch::~PerMicrobatch() {
  if (Trace *trace = Trace::active())
    --trace->perMicrobatch;
}

Tensor withSharding(Tensor x, std::vector<std::string> axes, Where where) {
  Ops ops("withSharding", where);
  if (static_cast<int64_t>(axes.size()) != x.rank())
    failRule("withSharding", 1, fmt::format("{} entries for rank {}", axes.size(), x.rank()), {fact(x, "input")},
             where);
  std::vector<llvm::StringRef> entries;
  for (const std::string &entry : axes) {
    if (!knownEntry(entry))
      failRule("withSharding", 2,
               fmt::format("an entry must be \"\", \"whole\", or axes dp or tp joined by +; found \"{}\"", entry),
               {fact(x, "input")}, where);
    entries.push_back(entry);
  }
  return tensorOf(ops.op<ShardHintOp>(typeOf(x), valueOf(x), ops.trace.builder.getStrArrayAttr(entries)).getResult());
}

void stage(int64_t k, Where where) {
  Trace &trace = Trace::current("stage", where);
  if (k < trace.stage.value_or(0))
    failRule("stage", 1,
             fmt::format("stages must not be negative or decrease, found {} after {}", k, trace.stage.value_or(0)), {},
             where);
  trace.stage = k;
}

} // namespace cleave
