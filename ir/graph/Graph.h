// The graph dialect in C++: ops, attributes, and the names of discardable attributes on functions and ops.
#pragma once
#include "ir/graph/Enums.h"
#include "ir/graph/SlotKind.h"
#include "runtime/base/DType.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include <bit>

namespace cleave::ir {
/// A double as an attribute parameter; compared and hashed by its bits.
struct Number {
  double value;
  Number(double value) : value(value) {}
  operator double() const { return value; }
  bool operator==(const Number &other) const {
    return std::bit_cast<uint64_t>(value) == std::bit_cast<uint64_t>(other.value);
  }
};
inline llvm::hash_code hash_value(const Number &number) {
  return llvm::hash_value(std::bit_cast<uint64_t>(number.value));
}
/// Trait: see Cleave_Delicate in GraphBase.td.
template <class Op> struct Delicate : mlir::OpTrait::TraitBase<Op, Delicate> {};
} // namespace cleave::ir

#define GET_ATTRDEF_CLASSES
#include "ir/graph/GraphAttrs.h.inc"

#include "ir/graph/GraphDialect.h.inc"

#define GET_OP_CLASSES
#include "ir/graph/GraphOps.h.inc"

namespace cleave::ir {

/// Names of discardable attributes; see the dialect description in GraphBase.td.
namespace attr {
inline constexpr llvm::StringLiteral kind = CleaveDialect::KindAttrHelper::getNameStr(),
                                     name = CleaveDialect::NameAttrHelper::getNameStr(),
                                     init = CleaveDialect::InitAttrHelper::getNameStr(),
                                     indices = CleaveDialect::IndicesAttrHelper::getNameStr(),
                                     trainable = CleaveDialect::TrainableAttrHelper::getNameStr(),
                                     lrScale = CleaveDialect::LrScaleAttrHelper::getNameStr(),
                                     weightDecay = CleaveDialect::WeightDecayAttrHelper::getNameStr(),
                                     parameter = CleaveDialect::ParameterAttrHelper::getNameStr(),
                                     path = CleaveDialect::PathAttrHelper::getNameStr(),
                                     layer = CleaveDialect::LayerAttrHelper::getNameStr(),
                                     lastLayer = CleaveDialect::LastLayerAttrHelper::getNameStr(),
                                     role = CleaveDialect::RoleAttrHelper::getNameStr(),
                                     stage = CleaveDialect::StageAttrHelper::getNameStr(),
                                     phase = CleaveDialect::PhaseAttrHelper::getNameStr(),
                                     perMicrobatch = CleaveDialect::PerMicrobatchAttrHelper::getNameStr(),
                                     staticWeight = CleaveDialect::StaticWeightAttrHelper::getNameStr(),
                                     staticCount = CleaveDialect::StaticCountAttrHelper::getNameStr(),
                                     optimizer = CleaveDialect::OptimizerAttrHelper::getNameStr(),
                                     lossScale = CleaveDialect::LossScaleAttrHelper::getNameStr(),
                                     reduceDtype = CleaveDialect::ReduceDtypeAttrHelper::getNameStr(),
                                     epilogues = CleaveDialect::EpiloguesAttrHelper::getNameStr();
}

/// Values of `attr::role`.
namespace role {
inline constexpr llvm::StringLiteral weightGradient = "weight_gradient", gradients = "gradients",
                                     parameters = "parameters", metrics = "metrics";
}

/// shard_hint entry for a dimension that must not be split. An entry "" keeps the dimension's sharding.
inline constexpr llvm::StringLiteral wholeDimension = "whole";

/// Unit attribute of convolutions, pooling and batch normalisation: the layout is [n, ..., c] instead of [n, c, ...].
inline constexpr llvm::StringLiteral channelsLast = "channels_last";

/// The type, the sizes and the number of dimensions of a tensor value.
inline mlir::RankedTensorType tensorType(mlir::Value value) {
  return mlir::cast<mlir::RankedTensorType>(value.getType());
}
inline llvm::ArrayRef<int64_t> shapeOf(mlir::Value value) { return tensorType(value).getShape(); }
inline int64_t rankOf(mlir::Value value) { return tensorType(value).getRank(); }
/// The DType of an element type or of a tensor's element type, and the element type of a DType.
DType dtypeOf(mlir::Type type);
mlir::Type elementType(mlir::MLIRContext *context, DType type);

/// A string attribute (kind, name, ...) of a function's argument or result; empty if missing.
llvm::StringRef argumentText(mlir::func::FuncOp function, unsigned index, llvm::StringRef attribute);
llvm::StringRef argumentText(mlir::BlockArgument argument, llvm::StringRef attribute);
llvm::StringRef resultText(mlir::func::FuncOp function, unsigned index, llvm::StringRef attribute);
/// The kind of a function's argument or result.
SlotKind argumentKind(mlir::func::FuncOp function, unsigned index);
SlotKind argumentKind(mlir::BlockArgument argument);
SlotKind resultKind(mlir::func::FuncOp function, unsigned index);
mlir::StringAttr kindAttr(mlir::Builder &builder, SlotKind kind);

/// The value of a splat constant; nullopt for any other attribute. Integers and i1 are converted to double.
std::optional<double> splatOf(mlir::Attribute value);
/// The same for the constant that defines `value`, looking through broadcasts.
std::optional<double> splatOf(mlir::Value value);
/// A tensor of `type` with `value`, rounded to the element type, in every element.
mlir::DenseElementsAttr splatAttr(mlir::RankedTensorType type, double value);
mlir::Value splatConstant(mlir::OpBuilder &builder, mlir::Location loc, mlir::RankedTensorType type, double value);
/// Floating-point operations of a convolution and of the gradient of its input or weight: a multiplication and an
/// addition for each element of `result`, the convolution's, and each of one output channel's weight.
double convFlops(mlir::Value weight, mlir::Value result);
/// The pipeline stage of an op; 0 if it has none.
int64_t stageOf(mlir::Operation *op);
/// Whether a cast is to a floating-point type of fewer bits.
bool narrows(CastOp cast);
/// Copies the discardable attributes (path, stage, phase, ...) of an op to the one that replaces it.
void copyMarks(mlir::Operation *from, mlir::Operation *to);
/// Copies what says where an op comes from: path, layer, role and phase, as far as it has them.
void copyOrigin(mlir::Operation *from, mlir::Operation *to);
/// Says what an op works for that belongs to no module: its role, and for readers its path.
void setRole(mlir::Operation *op, llvm::StringRef role);

} // namespace cleave::ir
