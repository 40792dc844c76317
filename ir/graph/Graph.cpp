// The graph dialect: registration, attributes, constants. Type inference, verifiers and folders of the ops are in
// Elementwise.cpp, Shape.cpp, LinearAlgebra.cpp and Composite.cpp.
#include "ir/graph/Graph.h"
#include "ir/graph/Discardable.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace cleave::ir;

namespace cleave::ir {
static FailureOr<Number> parseNumber(AsmParser &parser) {
  double value = 0;
  if (parser.parseFloat(value))
    return failure();
  return Number(value);
}
} // namespace cleave::ir

#include "ir/graph/GraphDialect.cpp.inc"
#include "ir/graph/GraphEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "ir/graph/GraphAttrs.cpp.inc"

#define GET_OP_CLASSES
#include "ir/graph/GraphOps.cpp.inc"

void CleaveDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "ir/graph/GraphAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "ir/graph/GraphOps.cpp.inc"
      >();
}

static LogicalResult verifyAttribute(Operation *op, NamedAttribute attribute, Place place) {
  using D = CleaveDialect;
  static const Discardable declared[] = {discardable<D::KindAttrHelper>(OnArgument | OnResult),
                                         discardable<D::NameAttrHelper>(OnArgument | OnResult),
                                         discardable<D::InitAttrHelper>(OnArgument),
                                         discardable<D::IndicesAttrHelper>(OnArgument),
                                         discardable<D::TrainableAttrHelper>(OnArgument | OnResult),
                                         discardable<D::LrScaleAttrHelper>(OnArgument),
                                         discardable<D::WeightDecayAttrHelper>(OnArgument),
                                         discardable<D::ParameterAttrHelper>(OnOp | OnArgument),
                                         discardable<D::PathAttrHelper>(OnOp),
                                         discardable<D::LayerAttrHelper>(OnOp),
                                         discardable<D::LastLayerAttrHelper>(OnOp),
                                         discardable<D::RoleAttrHelper>(OnOp),
                                         discardable<D::StageAttrHelper>(OnOp | OnResult),
                                         discardable<D::PhaseAttrHelper>(OnOp),
                                         discardable<D::PerMicrobatchAttrHelper>(OnOp),
                                         discardable<D::ActivationAttrHelper>(OnOp),
                                         discardable<D::SingleAttrHelper>(OnOp),
                                         discardable<D::StaticWeightAttrHelper>(OnFunction),
                                         discardable<D::StaticCountAttrHelper>(OnFunction),
                                         discardable<D::OptimizerAttrHelper>(OnModule),
                                         discardable<D::LossScaleAttrHelper>(OnModule),
                                         discardable<D::ReduceDtypeAttrHelper>(OnModule),
                                         discardable<D::EpiloguesAttrHelper>(OnModule)};
  if (failed(verifyDiscardable(op, attribute, place, declared)))
    return failure();
  if (attribute.getName() == attr::phase && cast<StringAttr>(attribute.getValue()) != "backward")
    return op->emitError("C4: ") << attr::phase << " must be \"backward\", found " << attribute.getValue();
  if (attribute.getName() == attr::kind &&
      slotKindOf(cast<StringAttr>(attribute.getValue()).getValue()) == SlotKind::None)
    return op->emitError("C5: ") << attr::kind << " is " << attribute.getValue()
                                 << ", which is no kind of argument or result";
  if (attribute.getName() == attr::stage)
    if (const int64_t stage = cast<IntegerAttr>(attribute.getValue()).getInt(); stage < 0 || stage >= 1 << 20)
      return op->emitError("C7: ") << attr::stage << " is " << stage << ", not in [0, 2^20)";
  if (attribute.getName() == attr::role &&
      !llvm::is_contained({role::weightGradient, role::gradients, role::parameters, role::metrics},
                          cast<StringAttr>(attribute.getValue()).getValue()))
    return op->emitError("C8: ") << attr::role << " is " << attribute.getValue() << ", which is no role";
  if (attribute.getName() == attr::indices)
    for (Attribute each : cast<ArrayAttr>(attribute.getValue()))
      if (auto indices = dyn_cast<IndicesAttr>(each); !indices || indices.getStart().size() != indices.getSize().size())
        return op->emitError("C6: ") << attr::indices << " has the entry " << each;
  return success();
}
LogicalResult CleaveDialect::verifyOperationAttribute(Operation *op, NamedAttribute attribute) {
  return verifyAttribute(op, attribute, placeOf(op));
}
LogicalResult CleaveDialect::verifyRegionArgAttribute(Operation *op, unsigned, unsigned, NamedAttribute attribute) {
  return verifyAttribute(op, attribute, OnArgument);
}
LogicalResult CleaveDialect::verifyRegionResultAttribute(Operation *op, unsigned, unsigned, NamedAttribute attribute) {
  return verifyAttribute(op, attribute, OnResult);
}

Operation *CleaveDialect::materializeConstant(OpBuilder &builder, Attribute value, Type type, Location loc) {
  auto elements = dyn_cast<ElementsAttr>(value);
  if (!elements || elements.getType() != type)
    return nullptr;
  return ConstantOp::create(builder, loc, type, elements);
}

std::optional<double> cleave::ir::splatOf(Attribute value) {
  auto splat = dyn_cast_or_null<SplatElementsAttr>(value);
  if (!splat)
    return std::nullopt;
  Type element = splat.getElementType();
  if (isa<FloatType>(element))
    return splat.getSplatValue<APFloat>().convertToDouble();
  APInt bits = splat.getSplatValue<APInt>();
  return element.isInteger(1) || element.isUnsignedInteger(8) ? double(bits.getZExtValue())
                                                              : double(bits.getSExtValue());
}

std::optional<double> cleave::ir::splatOf(Value value) {
  if (auto broadcast = value.getDefiningOp<BroadcastOp>())
    return splatOf(broadcast.getInput());
  if (auto constant = value.getDefiningOp<ConstantOp>())
    return splatOf(Attribute(constant.getValue()));
  return std::nullopt;
}

DenseElementsAttr cleave::ir::splatAttr(RankedTensorType type, double value) {
  Type element = type.getElementType();
  if (isa<FloatType>(element))
    return DenseElementsAttr::get(type, Attribute(FloatAttr::get(element, value)));
  return DenseElementsAttr::get(type, Attribute(IntegerAttr::get(element, int64_t(value))));
}

Value cleave::ir::splatConstant(OpBuilder &builder, Location loc, RankedTensorType type, double value) {
  return ConstantOp::create(builder, loc, type, cast<ElementsAttr>(splatAttr(type, value)));
}

static StringRef textOf(StringAttr text) { return text ? text.getValue() : StringRef(); }

cleave::DType cleave::ir::dtypeOf(Type type) {
  const Type element = getElementTypeOrSelf(type);
  if (element.isF32())
    return DType::F32;
  if (element.isF16())
    return DType::F16;
  if (element.isBF16())
    return DType::BF16;
  if (element.isInteger(32))
    return DType::I32;
  if (element.isInteger(64))
    return DType::I64;
  if (element.isUnsignedInteger(8))
    return DType::U8;
  assert(element.isInteger(1) && "an element type that no graph op has");
  return DType::I1;
}
Type cleave::ir::elementType(MLIRContext *context, DType type) {
  switch (type) {
  case DType::F32:
    return Float32Type::get(context);
  case DType::F16:
    return Float16Type::get(context);
  case DType::BF16:
    return BFloat16Type::get(context);
  case DType::I32:
  case DType::I64:
  case DType::I1:
    return IntegerType::get(context, type == DType::I32 ? 32 : type == DType::I64 ? 64 : 1);
  case DType::U8:
    return IntegerType::get(context, 8, IntegerType::Unsigned);
  }
  llvm_unreachable("element type");
}

StringRef cleave::ir::argumentText(func::FuncOp function, unsigned index, StringRef attribute) {
  return textOf(function.getArgAttrOfType<StringAttr>(index, attribute));
}
StringRef cleave::ir::argumentText(BlockArgument argument, StringRef attribute) {
  auto function = dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp());
  return function ? argumentText(function, argument.getArgNumber(), attribute) : StringRef();
}
StringRef cleave::ir::resultText(func::FuncOp function, unsigned index, StringRef attribute) {
  return textOf(function.getResultAttrOfType<StringAttr>(index, attribute));
}
SlotKind cleave::ir::argumentKind(func::FuncOp function, unsigned index) {
  return slotKindOf(argumentText(function, index, attr::kind));
}
SlotKind cleave::ir::argumentKind(BlockArgument argument) { return slotKindOf(argumentText(argument, attr::kind)); }
StringAttr cleave::ir::kindAttr(Builder &builder, SlotKind kind) { return builder.getStringAttr(text(kind)); }
SlotKind cleave::ir::resultKind(func::FuncOp function, unsigned index) {
  return slotKindOf(resultText(function, index, attr::kind));
}

int64_t cleave::ir::stageOf(Operation *op) {
  auto stage = op->getAttrOfType<IntegerAttr>(attr::stage);
  return stage ? stage.getInt() : 0;
}

bool cleave::ir::narrows(CastOp cast) {
  const auto from = tensorType(cast.getInput()), to = tensorType(cast.getResult());
  return isa<FloatType>(to.getElementType()) && to.getElementTypeBitWidth() < from.getElementTypeBitWidth();
}

void cleave::ir::copyMarks(Operation *from, Operation *to) {
  to->setDiscardableAttrs(from->getDiscardableAttrDictionary());
}

void cleave::ir::copyOrigin(Operation *from, Operation *to) {
  for (StringRef name : {attr::path, attr::layer, attr::lastLayer, attr::role, attr::phase})
    if (Attribute attribute = from->getAttr(name))
      to->setAttr(name, attribute);
}

void cleave::ir::setRole(Operation *op, StringRef role) {
  for (StringRef name : {attr::role, attr::path})
    op->setAttr(name, StringAttr::get(op->getContext(), role));
}

// A fusion's implicit terminator yields nothing.
void cleave::ir::YieldOp::build(mlir::OpBuilder &, mlir::OperationState &) {}
