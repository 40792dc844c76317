// Implements the short names for graph ops.
#include "frontend/trace/Compose.h"
#include "frontend/trace/Diagnose.h"
#include "frontend/trace/Statistics.h"

#include <fmt/format.h>
#include <numeric>

namespace cleave {

using mlir::Value;
using Predicate = ir::Predicate;

void checkFloat(const char *name, int rule, Tensor x, Where where) {
  if (!isFloat(x))
    failRule(name, rule, "the input's elements must be of a float type", {fact(x, "input")}, where);
}

/// With u = 1 + x, the factor x / (u - 1) corrects the rounding error of the sum (Kahan; Goldberg 1991, theorem 4).
Value Ops::log1p(Value x) {
  Value one = splat(x, 1), u = add(x, one), rest = sub(u, one);
  Value tiny = compare(Predicate::Eq, rest, 0);
  Value quotient = div(x, select(tiny, one, rest));
  return select(tiny, x, mul(log(u), quotient));
}

Value Ops::softplus(Value x) {
  Value zero = splat(x, 0), positive = compare(Predicate::Gt, x, zero);
  return add(select(positive, x, zero), log1p(exp(select(positive, neg(x), x))));
}

Value Ops::safeSqrt(Value x) {
  Value zero = compare(Predicate::Eq, x, 0);
  return select(zero, splat(x, 0), sqrt(select(zero, splat(x, 1), x)));
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
  return trace.make<ir::SliceOp>(where, x, llvm::ArrayRef<int64_t>(starts), llvm::ArrayRef<int64_t>(sizes)).getResult();
}

Value Ops::pad(Value x, int64_t dim, int64_t low, int64_t high) {
  if (low == 0 && high == 0)
    return x;
  std::vector<int64_t> before(shape(x).size(), 0), after(before);
  before[dim] = low;
  after[dim] = high;
  return trace.make<ir::PadOp>(where, x, llvm::ArrayRef<int64_t>(before), llvm::ArrayRef<int64_t>(after)).getResult();
}

Value Ops::swap(Value x, int64_t a, int64_t b) {
  std::vector<int64_t> dims(shape(x).size());
  std::iota(dims.begin(), dims.end(), 0);
  std::swap(dims[a], dims[b]);
  return a == b ? x : trace.make<ir::TransposeOp>(where, x, llvm::ArrayRef<int64_t>(dims)).getResult();
}

Value Ops::back(Value reduced, const Shape &shape, const std::vector<int64_t> &dims) {
  std::vector<int64_t> left;
  for (int64_t dim = 0; dim < static_cast<int64_t>(shape.size()); ++dim)
    if (!llvm::is_contained(dims, dim))
      left.push_back(dim);
  return dims.empty() ? reduced : broadcast(reduced, shape, left);
}

Value Ops::kept(Value reduced, const Shape &shape, const std::vector<int64_t> &dims, bool keepDim) {
  if (!keepDim)
    return reduced;
  Shape sizes = shape;
  for (int64_t dim : dims)
    sizes[dim] = 1;
  return reshape(reduced, sizes);
}

Value Ops::constant(const Shape &shape, const std::vector<float> &values) {
  mlir::RankedTensorType made = trace.type(shape, trace.element(DType::F32));
  return trace
      .make<ir::ConstantOp>(
          where, made,
          llvm::cast<mlir::ElementsAttr>(mlir::DenseElementsAttr::get(made, llvm::ArrayRef<float>(values))))
      .getResult();
}

Value Ops::constant(const Shape &shape, const std::vector<int32_t> &values) {
  mlir::RankedTensorType made = trace.type(shape, trace.element(DType::I32));
  return trace
      .make<ir::ConstantOp>(
          where, made,
          llvm::cast<mlir::ElementsAttr>(mlir::DenseElementsAttr::get(made, llvm::ArrayRef<int32_t>(values))))
      .getResult();
}

Value Ops::uniform(const Shape &shape, const std::string &what) {
  const std::string key = trace.path() + "/" + what;
  const std::string name = fmt::format("{}.{}", key, trace.occurrence(key));
  return trace.make<ir::RandomUniformOp>(where, trace.type(shape, trace.element(DType::F32)), name).getResult();
}

} // namespace cleave
