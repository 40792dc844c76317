// Converts one op of the annotated phase to ops of the local phase, for the ranks at given mesh coordinates.
#pragma once
#include "ir/dist/Sharding.h"
#include "partitioner/sharding/Messages.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"

namespace cleave::partitioner {

/// Creates local ops. `coords` are those of one rank of the class; only shapes may depend on them.
class Localiser {
public:
  Localiser(mlir::OpBuilder &builder, const Mesh &mesh, const std::vector<int64_t> &coords)
      : builder(builder), mesh(mesh), coords(coords) {}

  /// The type of this rank's piece of an annotated value.
  mlir::RankedTensorType localType(mlir::Value global) const;
  /// The type of this rank's piece of a value of type `global` under `sharding`.
  mlir::RankedTensorType localType(const Sharding &sharding, mlir::Type global) const;

  /// Emits `op` on local operands at the builder's insertion point; returns its results.
  llvm::SmallVector<mlir::Value> emit(mlir::Operation *op, mlir::ValueRange operands);

  /// Emits a collective over `axes`. Axes of size 1 are dropped; if none is left, returns the operands.
  llvm::SmallVector<mlir::Value> allReduce(mlir::Location loc, mlir::ValueRange values, std::vector<std::string> axes,
                                           PartialKind kind, const std::vector<int64_t> &stages = {});

  /// Emits the ops that convert this rank's piece of a value from one sharding to another; returns the new piece.
  mlir::Value reshard(mlir::Location loc, mlir::Value local, const Sharding &from, const Sharding &to);

private:
  mlir::OpBuilder &builder;
  const Mesh &mesh;
  const std::vector<int64_t> &coords;
  mutable llvm::DenseMap<std::pair<mlir::Attribute, mlir::Type>, mlir::RankedTensorType>
      types; ///< by sharding and type

  /// Elements of each factor on this rank.
  std::vector<int64_t> localSizes(const DimSharding &dim) const;
  mlir::Value gather(mlir::Location loc, mlir::Value local, const ReshardStep &step);
  mlir::Value slice(mlir::Location loc, mlir::Value local, const ReshardStep &step);
  mlir::Value allToAll(mlir::Location loc, mlir::Value local, const ReshardStep &step);
  using CollectiveMaker = llvm::function_ref<mlir::Value(mlir::Type result, mlir::Value input, int64_t dim)>;
  /// Emits a collective along factor `f` of a dimension whose factors have `sizes`: views the dimension as [outer,
  /// size, inner] around the factor, and merges it again with `after` elements for the factor.
  mlir::Value alongFactor(mlir::Location loc, mlir::Value local, int64_t dim, llvm::ArrayRef<int64_t> sizes, size_t f,
                          int64_t after, CollectiveMaker make);
  mlir::DenseI64ArrayAttr sharesOf(const Factor &factor);
  mlir::ArrayAttr axesOf(const Factor &factor);
  mlir::Value reduceScatter(mlir::Location loc, mlir::Value local, FactorPlace at, const Sharding &to,
                            PartialKind kind);
  /// `emit` without the attributes that record the origin of local values: one of the functions of single ops, or a
  /// copy.
  llvm::SmallVector<mlir::Value> localise(mlir::Operation *op, mlir::ValueRange operands);
  /// A copy of `op` with local types.
  mlir::Operation *copy(mlir::Operation *op, mlir::ValueRange operands);
  mlir::Value constant(mlir::Operation *op);
  mlir::Value iota(mlir::Operation *op);
  /// A look-up in a table, or its gradient. If the table is split by rows, subtracts this rank's first row.
  mlir::Value lookup(mlir::Operation *op, mlir::Value table, mlir::ValueRange operands);
  mlir::Value slice(mlir::Operation *op, mlir::Value operand);
  mlir::Value pad(mlir::Operation *op, mlir::ValueRange operands);
  mlir::Value reshaped(mlir::Location loc, mlir::Value local, llvm::ArrayRef<int64_t> shape);
  /// Start of this rank's share of a dimension split by its first factor, as tensor<i32>; null if it is not split.
  mlir::Value offset(mlir::Operation *op, const DimSharding &dim);
  int64_t share(const Factor &factor) const;
};

} // namespace cleave::partitioner
