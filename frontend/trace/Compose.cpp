// Implements the short names for graph ops.
#include "frontend/trace/Compose.h"
#include "frontend/trace/Diagnose.h"
#include "frontend/trace/Statistics.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>

namespace cleave {

using mlir::Value;
using Predicate = ir::Predicate;

void checkFloat(const char *name, int rule, Tensor x, Where where) {
  if (!isFloat(x))
    failRule(name, rule, "the input's elements must be of a float type", {fact(x, "input")}, where);
}

Value Ops::softplus(Value x) {
  Value zero = constantLike(x, 0), positive = compare(Predicate::Gt, x, zero);
  return add(select(positive, x, zero), log1p(exp(select(positive, neg(x), x))));
}

Value Ops::safeSqrt(Value x) {
  Value zero = compare(Predicate::Eq, x, 0);
  return select(zero, constantLike(x, 0), sqrt(select(zero, constantLike(x, 1), x)));
}

Value Ops::single(Value x) { return valueOf(inSingle(tensorOf(x), where)); }
Value Ops::activation(Value x) { return valueOf(asActivation(tensorOf(x), where)); }

Value Ops::slice(Value x, int64_t dim, int64_t start, int64_t end) {
  Shape sizes = shape(x);
  if (start == 0 && end == sizes[dim])
    return x;
  std::vector<int64_t> starts(sizes.size(), 0);
  starts[dim] = start;
  sizes[dim] = end - start;
  return op<ir::SliceOp>(x, llvm::ArrayRef<int64_t>(starts), llvm::ArrayRef<int64_t>(sizes)).getResult();
}

Value Ops::pad(Value x, int64_t dim, int64_t low, int64_t high) {
  if (low == 0 && high == 0)
    return x;
  std::vector<int64_t> before(shape(x).size(), 0), after(before);
  before[dim] = low;
  after[dim] = high;
  return op<ir::PadOp>(x, llvm::ArrayRef<int64_t>(before), llvm::ArrayRef<int64_t>(after)).getResult();
}

Value Ops::swap(Value x, int64_t a, int64_t b) {
  std::vector<int64_t> dims(shape(x).size());
  std::iota(dims.begin(), dims.end(), 0);
  std::swap(dims[a], dims[b]);
  return a == b ? x : op<ir::TransposeOp>(x, llvm::ArrayRef<int64_t>(dims)).getResult();
}

Value Ops::broadcastTo(Value x, const Shape &shape) {
  const int64_t lead = static_cast<int64_t>(shape.size()) - ir::rankOf(x);
  Shape kept;
  std::vector<int64_t> dims;
  for (int64_t i = 0; i < ir::rankOf(x); ++i)
    if (size(x, i) == shape[lead + i]) {
      kept.push_back(size(x, i));
      dims.push_back(lead + i);
    }
  return Ops::shape(x) == shape ? x : broadcast(reshape(x, kept), shape, dims);
}

Value Ops::kept(Value reduced, const Shape &shape, const std::vector<int64_t> &dims, bool keepDim) {
  if (!keepDim)
    return reduced;
  Shape sizes = shape;
  for (int64_t dim : dims)
    sizes[dim] = 1;
  return reshape(reduced, sizes);
}

template <class T> static Value constantOf(Ops &ops, const Shape &shape, const std::vector<T> &values, DType element) {
  mlir::RankedTensorType type = ops.trace.type(shape, ops.trace.element(element));
  auto elements = mlir::DenseElementsAttr::get(type, llvm::ArrayRef<T>(values));
  return ops.op<ir::ConstantOp>(type, llvm::cast<mlir::ElementsAttr>(elements));
}

Value Ops::constant(const Shape &shape, const std::vector<float> &values) {
  return constantOf(*this, shape, values, DType::F32);
}

Value Ops::constant(const Shape &shape, const std::vector<int32_t> &values) {
  return constantOf(*this, shape, values, DType::I32);
}

Value Ops::uniform(const Shape &shape, const std::string &what) { return random(shape, DType::F32, what, {}); }

Value Ops::keepMask(const Shape &shape, double p) {
  return random(shape, DType::I1, "dropout", builder().getF64FloatAttr(p));
}

Value Ops::random(const Shape &shape, DType type, const std::string &what, mlir::FloatAttr atLeast) {
  const std::string key = trace.path() + "/" + what;
  const std::string name = fmt::format("{}.{}", key, trace.occurrence(key));
  const std::optional<size_t> samples = trace.draw(name, shape);
  const auto dim = static_cast<std::ptrdiff_t>(samples.value_or(0));
  Shape drawn = shape, order(shape.size());
  std::iota(order.begin(), order.end(), 0);
  if (dim > 0) { // the numbers are counted by sample, so that these are drawn as dimension 0
    std::rotate(drawn.begin(), drawn.begin() + dim, drawn.begin() + dim + 1);
    std::rotate(order.begin(), order.begin() + 1, order.begin() + dim + 1);
  }
  Value numbers = op<ir::RandomUniformOp>(trace.type(drawn, trace.element(type)), trace.builder.getStringAttr(name),
                                          atLeast, !samples)
                      .getResult();
  return dim > 0 ? op<ir::TransposeOp>(numbers, llvm::ArrayRef<int64_t>(order)).getResult() : numbers;
}

} // namespace cleave
