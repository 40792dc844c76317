// Creates graph ops with an origin.
#include "ir/graph/GraphBuilder.h"

using namespace mlir;

namespace cleave::ir {

llvm::SmallVector<int64_t> dimsExcept(int64_t count, Dims excluded) {
  llvm::SmallVector<int64_t> dims;
  for (int64_t i = 0; i < count; ++i)
    if (!llvm::is_contained(excluded, i))
      dims.push_back(i);
  return dims;
}

GraphBuilder::GraphBuilder(OpBuilder builder) : b(builder), location(builder.getUnknownLoc()) {}

void GraphBuilder::setOrigin(Operation *op) { setOrigin(op->getLoc(), llvm::to_vector(op->getDiscardableAttrs())); }

void GraphBuilder::setOrigin(Location newLocation, llvm::ArrayRef<NamedAttribute> newAttributes) {
  location = newLocation;
  attributes.assign(newAttributes.begin(), newAttributes.end());
}

void GraphBuilder::setAttribute(llvm::StringRef name, llvm::StringRef value) {
  llvm::erase_if(attributes, [&](NamedAttribute attribute) { return attribute.getName() == name; });
  attributes.push_back(b.getNamedAttr(name, b.getStringAttr(value)));
}

int64_t GraphBuilder::stage() const {
  for (NamedAttribute attribute : attributes)
    if (attribute.getName() == attr::stage)
      return cast<IntegerAttr>(attribute.getValue()).getInt();
  return 0;
}

void GraphBuilder::setStage(int64_t stage) {
  for (NamedAttribute &attribute : attributes)
    if (attribute.getName() == attr::stage)
      attribute.setValue(b.getI64IntegerAttr(stage));
}

void GraphBuilder::shareSplats(Location newLocation) { shared.emplace(newLocation); }

void GraphBuilder::created(Operation *op) {
  for (NamedAttribute attribute : attributes)
    op->setDiscardableAttr(attribute.getName(), attribute.getValue());
}

#define CLEAVE_UNARY(Name, mnemonic, ...)                                                                              \
  Value GraphBuilder::mnemonic(Value x) { return op<Name##Op>(x); }
#define CLEAVE_BINARY(Name, mnemonic, ...)                                                                             \
  Value GraphBuilder::mnemonic(Value x, Value y) { return op<Name##Op>(x, y); }
#include "ir/graph/GraphElementwise.inc"

Value GraphBuilder::scale(Value x, double factor) { return factor == 1 ? x : mul(x, constantLike(x, factor)); }
Value GraphBuilder::shift(Value x, double term) { return term == 0 ? x : add(x, constantLike(x, term)); }

Value GraphBuilder::compare(Predicate predicate, Value x, Value y) { return op<CompareOp>(predicate, x, y); }
Value GraphBuilder::compare(Predicate predicate, Value x, double y) {
  return compare(predicate, x, constantLike(x, y));
}
Value GraphBuilder::select(Value condition, Value onTrue, Value onFalse) {
  return op<SelectOp>(onTrue.getType(), condition, onTrue, onFalse);
}
Value GraphBuilder::cast(Value x, Type elementType) {
  if (tensorType(x).getElementType() == elementType)
    return x;
  return op<CastOp>(tensorType(x).clone(elementType), x);
}

/// Creates an op after `after` or, if null, at the start of the block, in order of creation.
template <class Op, class... Args> Value GraphBuilder::makeShared(Operation *after, Args &&...args) {
  OpBuilder::InsertionGuard guard(b);
  const bool atStart = !after;
  if (atStart)
    after = shared->last;
  if (after)
    b.setInsertionPointAfter(after);
  else
    b.setInsertionPointToStart(b.getInsertionBlock());
  Value made = Op::create(b, shared->location, std::forward<Args>(args)...);
  if (atStart)
    shared->last = made.getDefiningOp();
  return made;
}

Value GraphBuilder::constant(RankedTensorType type, double value) {
  DenseElementsAttr elements = splatAttr(type, value);
  if (!shared)
    return op<ConstantOp>(type, elements);
  Value &made = shared->constants[elements];
  return made ? made : made = makeShared<ConstantOp>(nullptr, type, elements);
}

Value GraphBuilder::iota(Dims shape, int64_t dim) {
  return op<IotaOp>(RankedTensorType::get(shape, b.getI32Type()), Value(), static_cast<uint64_t>(dim));
}

Value GraphBuilder::broadcast(Value x, Dims shape, Dims dims) {
  if (shapeOf(x) == shape)
    return x;
  return op<BroadcastOp>(RankedTensorType::get(shape, tensorType(x).getElementType()), x, dims);
}

Value GraphBuilder::splat(Value scalar, Dims shape) {
  if (!shared || shape.empty())
    return broadcast(scalar, shape, {});
  auto type = RankedTensorType::get(shape, tensorType(scalar).getElementType());
  Value &made = shared->broadcasts[{scalar, type}];
  return made ? made : made = makeShared<BroadcastOp>(scalar.getDefiningOp(), type, scalar, Dims());
}

Value GraphBuilder::broadcastBack(Value x, Dims shape, Dims dropped) {
  return broadcast(x, shape, dimsExcept(shape.size(), dropped));
}

Value GraphBuilder::reduce(ReduceKind kind, Value x, Dims dims) {
  return dims.empty() ? x : op<ReduceOp>(kind, x, dims).getResult();
}

Value GraphBuilder::reshape(Value x, Dims shape) {
  if (shapeOf(x) == shape)
    return x;
  return op<ReshapeOp>(RankedTensorType::get(shape, tensorType(x).getElementType()), x);
}

Value GraphBuilder::matmul(Value x, Value y, bool transA, bool transB) { return op<MatmulOp>(x, y, transA, transB); }

} // namespace cleave::ir
