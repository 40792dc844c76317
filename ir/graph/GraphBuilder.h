// Creates graph ops in mathematical notation: `e.mul(a, e.exp(b))`. Every op gets the current origin: the user's
// location and the discardable attributes (cleave.path, cleave.stage, cleave.phase, ...) of the op that it derives
// from.
//
// Operand shapes must be equal, as the graph dialect requires; the caller broadcasts.
#pragma once
#include "ir/graph/Graph.h"
#include "mlir/IR/Builders.h"

#include <optional>

namespace cleave::ir {

using Dims = llvm::ArrayRef<int64_t>;
/// 0, 1, ..., count - 1, except those listed.
llvm::SmallVector<int64_t> dimsExcept(int64_t count, Dims excluded = {});

class GraphBuilder {
public:
  explicit GraphBuilder(mlir::OpBuilder builder);
  virtual ~GraphBuilder() = default;

  /// Sets the origin to `op`'s location and discardable attributes.
  void setOrigin(mlir::Operation *op);
  /// Sets the origin to this location and these attributes.
  void setOrigin(mlir::Location location, llvm::ArrayRef<mlir::NamedAttribute> attributes);
  /// Adds or replaces an attribute of the origin.
  void setAttribute(llvm::StringRef name, llvm::StringRef value);
  /// The pipeline stage of the origin; 0 if it has none.
  int64_t stage() const;
  /// Replaces the origin's stage, if it has one.
  void setStage(int64_t stage);
  mlir::OpBuilder &builder() { return b; }
  /// From now on, creates equal constants and equal broadcasts of scalars only once per block, with this location and
  /// no attributes. For blocks that repeat a few ops for thousands of tensors.
  void shareSplats(mlir::Location location);

  /// Creates any op: e.op<MatmulOp>(a, b, false, true).
  template <class Op, class... Args> Op op(Args &&...args) {
    Op made = Op::create(b, location, std::forward<Args>(args)...);
    created(made);
    return made;
  }

  // The unary and binary elementwise ops by their names: neg, exp, add, mul, ...
#define CLEAVE_UNARY(Name, mnemonic, ...) mlir::Value mnemonic(mlir::Value x);
#define CLEAVE_BINARY(Name, mnemonic, ...) mlir::Value mnemonic(mlir::Value x, mlir::Value y);
#include "ir/graph/GraphElementwise.inc"
  /// x * factor, x + term.
  mlir::Value scale(mlir::Value x, double factor), shift(mlir::Value x, double term);
  mlir::Value compare(Predicate predicate, mlir::Value x, mlir::Value y);
  /// Comparison with a constant.
  mlir::Value compare(Predicate predicate, mlir::Value x, double y);
  mlir::Value select(mlir::Value condition, mlir::Value onTrue, mlir::Value onFalse);
  /// Converts the element type; returns `x` if it has that type.
  mlir::Value cast(mlir::Value x, mlir::Type elementType);
  mlir::Value castLike(mlir::Value x, mlir::Value like) { return cast(x, tensorType(like).getElementType()); }
  mlir::Value toF32(mlir::Value x) { return cast(x, b.getF32Type()); }

  /// A splat of `type` (integers are truncated).
  mlir::Value constant(mlir::RankedTensorType type, double value);
  mlir::Value constantLike(mlir::Value like, double value) { return constant(tensorType(like), value); }
  /// i32 indices along `dim`.
  mlir::Value iota(Dims shape, int64_t dim);

  /// Operand dimension i becomes dimension dims[i] of `shape`.
  mlir::Value broadcast(mlir::Value x, Dims shape, Dims dims);
  /// Broadcasts the result of a reduction that removed `dropped` from `shape` back to `shape`.
  mlir::Value broadcastBack(mlir::Value x, Dims shape, Dims dropped);
  /// Broadcasts a tensor of rank 0 to `shape`.
  mlir::Value splat(mlir::Value scalar, Dims shape);
  mlir::Value reduce(ReduceKind kind, mlir::Value x, Dims dims);
  mlir::Value sum(mlir::Value x, Dims dims) { return reduce(ReduceKind::Sum, x, dims); }
  mlir::Value reshape(mlir::Value x, Dims shape);
  mlir::Value matmul(mlir::Value x, mlir::Value y, bool transA = false, bool transB = false);

protected:
  /// Gives a new op the origin's attributes.
  virtual void created(mlir::Operation *op);

private:
  struct SharedSplats {
    explicit SharedSplats(mlir::Location location) : location(location) {}
    mlir::Location location;
    mlir::Operation *last = nullptr; ///< last shared op at the start of the block
    llvm::DenseMap<mlir::Attribute, mlir::Value> constants;
    llvm::DenseMap<std::pair<mlir::Value, mlir::Type>, mlir::Value> broadcasts;
  };

  template <class Op, class... Args> mlir::Value makeShared(mlir::Operation *after, Args &&...args);
  mlir::OpBuilder b;
  mlir::Location location;
  llvm::SmallVector<mlir::NamedAttribute> attributes;
  std::optional<SharedSplats> shared;
};

} // namespace cleave::ir
