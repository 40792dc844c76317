// Helpers for functions composed of several ops: short names that create graph ops with the user's source line, and
// code shared by several files. Operands have equal shapes unless a comment says otherwise. The caller has checked the
// rules of the user's function.
#pragma once
#include "frontend/trace/Trace.h"

#include <optional>

namespace cleave {

/// NumPy's broadcast shape of two shapes; nullopt if they are incompatible.
std::optional<Shape> commonShape(const Shape &a, const Shape &b);
/// Broadcasts x to `shape`: a reshape removes the dimensions of size 1 that grow; cleave.broadcast adds dimensions.
mlir::Value broadcastTo(Trace &trace, mlir::Value x, const Shape &shape, Where where);
/// Both operands of function `name` as values of one type; a number becomes a splat of the other operand's type. Checks
/// the rules of the arithmetic operators.
std::pair<mlir::Value, mlir::Value> bothSides(const char *name, const Operand &a, const Operand &b, Where where);
/// Dimensions to reduce: sorted, nonnegative, all if `dims` is empty. Checks rule C1 of `name`.
std::vector<int64_t> reducedDims(const char *name, Tensor x, std::vector<int64_t> dims, Where where);
inline bool isFloat(Tensor x) { return llvm::isa<mlir::FloatType>(typeOf(x).getElementType()); }
/// Fails with rule `rule` unless x has a float type.
void checkFloat(const char *name, int rule, Tensor x, Where where);

class Ops {
public:
  using Value = mlir::Value;
  Ops(const char *name, Where where) : trace(Trace::current(name, where)), where(where) {}

  Trace &trace;
  Where where;

  static mlir::RankedTensorType type(Value x) { return llvm::cast<mlir::RankedTensorType>(x.getType()); }
  static Shape shape(Value x) { return type(x).getShape().vec(); }
  static int64_t size(Value x, int64_t dim) { return type(x).getDimSize(static_cast<unsigned>(dim)); }

  // Elementwise.
  template <class Op> Value unary(Value x) { return trace.make<Op>(where, x.getType(), x).getResult(); }
  template <class Op> Value binary(Value x, Value y) { return trace.make<Op>(where, x.getType(), x, y).getResult(); }
  Value add(Value x, Value y) { return binary<ir::AddOp>(x, y); }
  Value sub(Value x, Value y) { return binary<ir::SubOp>(x, y); }
  Value mul(Value x, Value y) { return binary<ir::MulOp>(x, y); }
  Value div(Value x, Value y) { return binary<ir::DivOp>(x, y); }
  Value max(Value x, Value y) { return binary<ir::MaxOp>(x, y); }
  Value min(Value x, Value y) { return binary<ir::MinOp>(x, y); }
  Value pow(Value x, Value y) { return binary<ir::PowOp>(x, y); }
  Value neg(Value x) { return unary<ir::NegOp>(x); }
  Value abs(Value x) { return unary<ir::AbsOp>(x); }
  Value exp(Value x) { return unary<ir::ExpOp>(x); }
  Value log(Value x) { return unary<ir::LogOp>(x); }
  Value sqrt(Value x) { return unary<ir::SqrtOp>(x); }
  Value tanh(Value x) { return unary<ir::TanhOp>(x); }
  Value sigmoid(Value x) { return unary<ir::SigmoidOp>(x); }
  Value detach(Value x) { return unary<ir::DetachOp>(x); }
  Value splat(Value like, double value) { return trace.splat(where, type(like), value); }
  Value scale(Value x, double factor) { return factor == 1 ? x : mul(x, splat(x, factor)); }
  Value compare(ir::Predicate predicate, Value x, Value y) {
    return trace.make<ir::CompareOp>(where, predicate, x, y).getResult();
  }
  Value compare(ir::Predicate predicate, Value x, double y) { return compare(predicate, x, splat(x, y)); }
  Value select(Value condition, Value onTrue, Value onFalse) {
    return trace.make<ir::SelectOp>(where, onTrue.getType(), condition, onTrue, onFalse).getResult();
  }
  Value cast(Value x, mlir::Type element) {
    return trace.make<ir::CastOp>(where, type(x).clone(element), x).getResult();
  }
  Value cast(Value x, DType to) { return cast(x, trace.element(to)); }
  /// log(1 + x) for x >= 0, accurate even if 1 + x rounds to 1.
  Value log1p(Value x);
  /// max(x, 0) + log(1 + e^-|x|); its derivative is sigmoid(x) everywhere.
  Value softplus(Value x);
  /// sqrt(x) for x >= 0, with derivative 0 at 0.
  Value safeSqrt(Value x);

  // For mixed precision (passes/precision): ops from `single` to `activation` are computed in f32 at every level.
  Value single(Value x);
  Value activation(Value x);

  // Shapes.
  Value broadcast(Value x, const Shape &shape, std::vector<int64_t> dims) {
    return trace.make<ir::BroadcastOp>(where, type(x).clone(shape), x, llvm::ArrayRef<int64_t>(dims)).getResult();
  }
  /// Repeats a vector along all dimensions except `dim`.
  Value along(Value x, const Shape &shape, int64_t dim) { return broadcast(x, shape, {dim}); }
  Value reshape(Value x, const Shape &shape) {
    return shape == Ops::shape(x) ? x : trace.make<ir::ReshapeOp>(where, type(x).clone(shape), x).getResult();
  }
  Value slice(Value x, int64_t dim, int64_t start, int64_t end);
  /// Adds zeros before and after along `dim`.
  Value pad(Value x, int64_t dim, int64_t low, int64_t high);
  Value concat(const std::vector<Value> &values, int64_t dim) {
    return values.size() == 1
               ? values[0]
               : trace.make<ir::ConcatOp>(where, mlir::ValueRange(values), static_cast<uint64_t>(dim)).getResult();
  }
  Value swap(Value x, int64_t a, int64_t b);
  Value gather(Value x, int64_t dim, Value index) {
    return trace.make<ir::GatherOp>(where, x, index, static_cast<uint64_t>(dim)).getResult();
  }
  Value reduce(ir::ReduceKind kind, Value x, const std::vector<int64_t> &dims) {
    return dims.empty() ? x : trace.make<ir::ReduceOp>(where, kind, x, llvm::ArrayRef<int64_t>(dims)).getResult();
  }
  Value sum(Value x, const std::vector<int64_t> &dims) { return reduce(ir::ReduceKind::Sum, x, dims); }
  /// Repeats the result of a reduction over `dims` to `shape`.
  Value back(Value reduced, const Shape &shape, const std::vector<int64_t> &dims);
  /// The result of a reduction over `dims` of `shape`; if `keepDim`, reshaped to have size 1 along `dims`.
  Value kept(Value reduced, const Shape &shape, const std::vector<int64_t> &dims, bool keepDim);
  Value matmul(Value x, Value y, bool transA = false, bool transB = false) {
    return trace.make<ir::MatmulOp>(where, x, y, transA, transB).getResult();
  }

  // Ops without tensor operands.
  Value iota(const Shape &shape, int64_t dim) {
    return trace
        .make<ir::IotaOp>(where, trace.type(shape, trace.element(DType::I32)), mlir::Value(),
                          static_cast<uint64_t>(dim))
        .getResult();
  }
  Value constant(const Shape &shape, const std::vector<float> &values);
  Value constant(const Shape &shape, const std::vector<int32_t> &values);
  /// Uniform random numbers in [0, 1), keyed by the module path, `what`, and the number of earlier calls with both.
  Value uniform(const Shape &shape, const std::string &what);
};

} // namespace cleave
