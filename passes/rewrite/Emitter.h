// Writes graph ops in the words of the mathematics: `e.mul(a, e.exp(b))`. Every op it makes carries the origin that was
// set: the user's location and the discardable attributes (cleave.path, cleave.stage, cleave.phase, ...) of the op it
// stems from.
//
// Operand shapes must agree as the graph dialect demands; broadcasting is written out by the caller.
#pragma once
#include "ir/graph/Graph.h"
#include "mlir/IR/Builders.h"

#include <optional>

namespace cleave::passes {

using Dims = llvm::ArrayRef<int64_t>;

/// The type of a tensor value.
mlir::RankedTensorType tensorType(mlir::Value value);
Dims shapeOf(mlir::Value value);
int64_t rankOf(mlir::Value value);
/// 0, 1, ..., count - 1, without those listed.
llvm::SmallVector<int64_t> dimsExcept(int64_t count, Dims excluded = {});
/// Product of sizes.
int64_t product(Dims sizes);
/// Whether a value is a floating-point tensor.
bool isFloat(mlir::Value value);
/// "file.cpp:12:5: ", or "" where the location names no file.
std::string locationText(mlir::Location location);
/// `op`'s or argument's string attribute, "" where it has none.
llvm::StringRef textAttr(mlir::Operation *op, llvm::StringRef name);

class Emitter {
public:
  explicit Emitter(mlir::OpBuilder builder);

  /// Ops made from now on carry `op`'s location and discardable attributes.
  void setOrigin(mlir::Operation *op);
  /// Ops made from now on carry this location and these attributes.
  void setOrigin(mlir::Location location, llvm::ArrayRef<mlir::NamedAttribute> attributes);
  /// Adds to, or replaces in, the current origin.
  void setAttribute(llvm::StringRef name, llvm::StringRef value);
  /// The pipeline stage of the origin; 0 where it has none.
  int64_t stage() const;
  /// Replaces the origin's stage, where it has one.
  void setStage(int64_t stage);
  mlir::OpBuilder &builder() { return b; }
  /// From now on equal constants are one op, and so are repeated splats of one scalar: in the block that is being
  /// filled, with this location and no attributes. For a block that repeats a few ops for thousands of tensors.
  void shareSplats(mlir::Location location);

  /// Makes any op: e.op<ir::MatmulOp>(a, b, false, true).
  template <class Op, class... Args> Op op(Args &&...args) {
    Op made = Op::create(b, location, std::forward<Args>(args)...);
    stamp(made);
    return made;
  }

  // Elementwise: result type as the operand's.
  mlir::Value neg(mlir::Value x), exp(mlir::Value x), log(mlir::Value x), sqrt(mlir::Value x), rsqrt(mlir::Value x),
      tanh(mlir::Value x), sin(mlir::Value x), cos(mlir::Value x), sigmoid(mlir::Value x);
  mlir::Value add(mlir::Value x, mlir::Value y), sub(mlir::Value x, mlir::Value y), mul(mlir::Value x, mlir::Value y),
      div(mlir::Value x, mlir::Value y), max(mlir::Value x, mlir::Value y), min(mlir::Value x, mlir::Value y),
      pow(mlir::Value x, mlir::Value y);
  /// x * factor, x + term.
  mlir::Value scale(mlir::Value x, double factor), shift(mlir::Value x, double term);
  mlir::Value compare(ir::Predicate predicate, mlir::Value x, mlir::Value y);
  /// Comparison with a constant.
  mlir::Value compare(ir::Predicate predicate, mlir::Value x, double y);
  mlir::Value select(mlir::Value condition, mlir::Value onTrue, mlir::Value onFalse);
  /// Change of element type; `x` itself where it has that type.
  mlir::Value cast(mlir::Value x, mlir::Type elementType);
  mlir::Value toF32(mlir::Value x) { return cast(x, b.getF32Type()); }

  /// A splat of `type` (integers are truncated).
  mlir::Value constant(mlir::RankedTensorType type, double value);
  mlir::Value constantLike(mlir::Value like, double value) { return constant(tensorType(like), value); }
  /// i32 indices along `dim`.
  mlir::Value iota(Dims shape, int64_t dim);

  /// Operand dimension i becomes dimension dims[i] of `shape`.
  mlir::Value broadcast(mlir::Value x, Dims shape, Dims dims);
  /// Undoes the dropping of `dropped` by a reduction of a tensor of `shape`.
  mlir::Value broadcastBack(mlir::Value x, Dims shape, Dims dropped);
  /// A tensor of rank 0 repeated to `shape`.
  mlir::Value splat(mlir::Value scalar, Dims shape);
  mlir::Value reduce(ir::ReduceKind kind, mlir::Value x, Dims dims);
  mlir::Value sum(mlir::Value x, Dims dims) { return reduce(ir::ReduceKind::Sum, x, dims); }
  mlir::Value reshape(mlir::Value x, Dims shape);
  mlir::Value matmul(mlir::Value x, mlir::Value y, bool transA, bool transB);

private:
  struct SharedSplats {
    explicit SharedSplats(mlir::Location location) : location(location) {}
    mlir::Location location;
    mlir::Operation *last = nullptr; ///< of those at the block's start
    llvm::DenseMap<mlir::Attribute, mlir::Value> constants;
    llvm::DenseMap<std::pair<mlir::Value, mlir::Type>, mlir::Value> broadcasts;
  };

  template <class Op, class... Args> mlir::Value makeShared(mlir::Operation *after, Args &&...args);
  void stamp(mlir::Operation *op);
  mlir::OpBuilder b;
  mlir::Location location;
  llvm::SmallVector<mlir::NamedAttribute> attributes;
  std::optional<SharedSplats> shared;
};

} // namespace cleave::passes
