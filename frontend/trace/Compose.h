// Helpers for functions composed of several ops: short names that create graph ops with the user's source line, and
// code shared by several files. Operands have equal shapes unless a comment says otherwise. The caller has checked the
// rules of the user's function.
#pragma once
#include "frontend/trace/Trace.h"
#include "ir/graph/GraphBuilder.h"

#include <optional>

namespace cleave {

/// NumPy's broadcast shape of two shapes; nullopt if they are incompatible.
std::optional<Shape> commonShape(const Shape &a, const Shape &b);
/// Both operands of function `name` as values of one type; a number becomes a splat of the other operand's type. Checks
/// the rules of the arithmetic operators.
std::pair<mlir::Value, mlir::Value> bothSides(const char *name, const Operand &a, const Operand &b, Where where);
/// Dimensions to reduce: sorted, nonnegative, all if `dims` is empty. Checks rule C1 of `name`.
std::vector<int64_t> reducedDims(const char *name, Tensor x, std::vector<int64_t> dims, Where where);
inline bool isFloat(Tensor x) { return llvm::isa<mlir::FloatType>(typeOf(x).getElementType()); }
/// Fails with rule `rule` unless x has a float type.
void checkFloat(const char *name, int rule, Tensor x, Where where);

/// Creates ops with the user's source line, and the path and stage of the trace.
class Ops : public ir::GraphBuilder {
public:
  using Value = mlir::Value;
  Ops(const char *name, Where where) : Ops(Trace::current(name, where), where) {}

  Trace &trace;
  Where where;

  static mlir::RankedTensorType type(Value x) { return ir::tensorType(x); }
  static Shape shape(Value x) { return type(x).getShape().vec(); }
  static int64_t size(Value x, int64_t dim) { return type(x).getDimSize(static_cast<unsigned>(dim)); }

  using GraphBuilder::cast;
  Value cast(Value x, DType to) { return cast(x, trace.element(to)); }
  Value detach(Value x) { return op<ir::DetachOp>(x); }
  /// max(x, 0) + log(1 + e^-|x|); its derivative is sigmoid(x) everywhere.
  Value softplus(Value x);
  /// sqrt(x) for x >= 0, with derivative 0 at 0.
  Value safeSqrt(Value x);

  // For mixed precision (passes/precision): ops from `single` to `activation` are computed in f32 at every level.
  Value single(Value x);
  Value activation(Value x);

  // Shapes.
  /// NumPy's broadcast of x to `shape`: a reshape removes the dimensions of size 1 that grow; cleave.broadcast adds
  /// dimensions.
  Value broadcastTo(Value x, const Shape &shape);
  /// Repeats a vector along all dimensions except `dim`.
  Value along(Value x, const Shape &shape, int64_t dim) { return broadcast(x, shape, {dim}); }
  Value slice(Value x, int64_t dim, int64_t start, int64_t end);
  /// Adds zeros before and after along `dim`.
  Value pad(Value x, int64_t dim, int64_t low, int64_t high);
  Value concat(const std::vector<Value> &values, int64_t dim) {
    return values.size() == 1 ? values[0]
                              : op<ir::ConcatOp>(mlir::ValueRange(values), static_cast<uint64_t>(dim)).getResult();
  }
  Value swap(Value x, int64_t a, int64_t b);
  Value gather(Value x, int64_t dim, Value index) { return op<ir::GatherOp>(x, index, static_cast<uint64_t>(dim)); }
  /// The result of a reduction over `dims` of `shape`; if `keepDim`, reshaped to have size 1 along `dims`.
  Value kept(Value reduced, const Shape &shape, const std::vector<int64_t> &dims, bool keepDim);

  // Ops without tensor operands.
  using GraphBuilder::constant;
  Value constant(const Shape &shape, const std::vector<float> &values);
  Value constant(const Shape &shape, const std::vector<int32_t> &values);
  /// Uniform random numbers in [0, 1), keyed by the module path, `what`, and the number of earlier calls with both.
  Value uniform(const Shape &shape, const std::string &what);
  /// Which elements a dropout with probability `p` keeps: those whose random number is at least `p`.
  Value keepMask(const Shape &shape, double p);

protected:
  void created(mlir::Operation *op) override { trace.created(op, where); }

private:
  Value random(const Shape &shape, DType type, const std::string &what, mlir::FloatAttr atLeast);
  Ops(Trace &trace, Where where) : GraphBuilder(trace.builder), trace(trace), where(where) {
    setOrigin(trace.location(where), {});
  }
};

} // namespace cleave
