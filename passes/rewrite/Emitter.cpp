// Creates graph ops with an origin.
#include "passes/rewrite/Emitter.h"

#include <algorithm>
#include <numeric>

using namespace mlir;

namespace cleave::passes {

llvm::SmallVector<int64_t> dimsExcept(int64_t count, Dims excluded) {
  llvm::SmallVector<int64_t> dims;
  for (int64_t i = 0; i < count; ++i)
    if (!llvm::is_contained(excluded, i))
      dims.push_back(i);
  return dims;
}

int64_t product(Dims sizes) { return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>()); }

bool isFloat(Value value) { return isa<FloatType>(tensorType(value).getElementType()); }

std::string locationText(Location location) {
  std::string text;
  location->walk([&](Location part) {
    auto file = dyn_cast<FileLineColLoc>(part);
    if (!file)
      return WalkResult::advance();
    text =
        file.getFilename().str() + ":" + std::to_string(file.getLine()) + ":" + std::to_string(file.getColumn()) + ": ";
    return WalkResult::interrupt();
  });
  return text;
}

llvm::StringRef textAttr(Operation *op, llvm::StringRef name) {
  auto attribute = op->getAttrOfType<StringAttr>(name);
  return attribute ? attribute.getValue() : llvm::StringRef();
}

Emitter::Emitter(OpBuilder builder) : b(builder), location(builder.getUnknownLoc()) {}

void Emitter::setOrigin(Operation *op) { setOrigin(op->getLoc(), llvm::to_vector(op->getDiscardableAttrs())); }

void Emitter::setOrigin(Location newLocation, llvm::ArrayRef<NamedAttribute> newAttributes) {
  location = newLocation;
  attributes.assign(newAttributes.begin(), newAttributes.end());
}

void Emitter::setAttribute(llvm::StringRef name, llvm::StringRef value) {
  llvm::erase_if(attributes, [&](NamedAttribute attribute) { return attribute.getName() == name; });
  attributes.push_back(b.getNamedAttr(name, b.getStringAttr(value)));
}

int64_t Emitter::stage() const {
  for (NamedAttribute attribute : attributes)
    if (attribute.getName() == ir::attr::stage)
      return cast<IntegerAttr>(attribute.getValue()).getInt();
  return 0;
}

void Emitter::setStage(int64_t stage) {
  for (NamedAttribute &attribute : attributes)
    if (attribute.getName() == ir::attr::stage)
      attribute.setValue(b.getI64IntegerAttr(stage));
}

void Emitter::shareSplats(Location newLocation) { shared.emplace(newLocation); }

void Emitter::stamp(Operation *op) {
  for (NamedAttribute attribute : attributes)
    op->setDiscardableAttr(attribute.getName(), attribute.getValue());
}

Value Emitter::neg(Value x) { return op<ir::NegOp>(x); }
Value Emitter::exp(Value x) { return op<ir::ExpOp>(x); }
Value Emitter::log(Value x) { return op<ir::LogOp>(x); }
Value Emitter::sqrt(Value x) { return op<ir::SqrtOp>(x); }
Value Emitter::rsqrt(Value x) { return op<ir::RsqrtOp>(x); }
Value Emitter::tanh(Value x) { return op<ir::TanhOp>(x); }
Value Emitter::sin(Value x) { return op<ir::SinOp>(x); }
Value Emitter::cos(Value x) { return op<ir::CosOp>(x); }
Value Emitter::sigmoid(Value x) { return op<ir::SigmoidOp>(x); }
Value Emitter::add(Value x, Value y) { return op<ir::AddOp>(x, y); }
Value Emitter::sub(Value x, Value y) { return op<ir::SubOp>(x, y); }
Value Emitter::mul(Value x, Value y) { return op<ir::MulOp>(x, y); }
Value Emitter::div(Value x, Value y) { return op<ir::DivOp>(x, y); }
Value Emitter::max(Value x, Value y) { return op<ir::MaxOp>(x, y); }
Value Emitter::min(Value x, Value y) { return op<ir::MinOp>(x, y); }
Value Emitter::pow(Value x, Value y) { return op<ir::PowOp>(x, y); }
Value Emitter::scale(Value x, double factor) { return factor == 1 ? x : mul(x, constantLike(x, factor)); }
Value Emitter::shift(Value x, double term) { return term == 0 ? x : add(x, constantLike(x, term)); }

Value Emitter::compare(ir::Predicate predicate, Value x, Value y) { return op<ir::CompareOp>(predicate, x, y); }
Value Emitter::compare(ir::Predicate predicate, Value x, double y) { return compare(predicate, x, constantLike(x, y)); }
Value Emitter::select(Value condition, Value onTrue, Value onFalse) {
  return op<ir::SelectOp>(onTrue.getType(), condition, onTrue, onFalse);
}
Value Emitter::cast(Value x, Type elementType) {
  if (tensorType(x).getElementType() == elementType)
    return x;
  return op<ir::CastOp>(tensorType(x).clone(elementType), x);
}

/// Creates an op after `after` or, if null, at the start of the block, in order of creation.
template <class Op, class... Args> Value Emitter::makeShared(Operation *after, Args &&...args) {
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

Value Emitter::constant(RankedTensorType type, double value) {
  Type element = type.getElementType();
  Attribute splat;
  if (isa<FloatType>(element))
    splat = b.getFloatAttr(element, value);
  else
    splat = b.getIntegerAttr(element, static_cast<int64_t>(value));
  auto elements = DenseElementsAttr::get(type, splat);
  if (!shared)
    return op<ir::ConstantOp>(type, elements);
  Value &made = shared->constants[elements];
  return made ? made : made = makeShared<ir::ConstantOp>(nullptr, type, elements);
}

Value Emitter::iota(Dims shape, int64_t dim) {
  return op<ir::IotaOp>(RankedTensorType::get(shape, b.getI32Type()), Value(), static_cast<uint64_t>(dim));
}

Value Emitter::broadcast(Value x, Dims shape, Dims dims) {
  if (shapeOf(x) == shape)
    return x;
  return op<ir::BroadcastOp>(RankedTensorType::get(shape, tensorType(x).getElementType()), x, dims);
}

Value Emitter::splat(Value scalar, Dims shape) {
  if (!shared || shape.empty())
    return broadcast(scalar, shape, {});
  auto type = RankedTensorType::get(shape, tensorType(scalar).getElementType());
  Value &made = shared->broadcasts[{scalar, type}];
  return made ? made : made = makeShared<ir::BroadcastOp>(scalar.getDefiningOp(), type, scalar, Dims());
}

Value Emitter::broadcastBack(Value x, Dims shape, Dims dropped) {
  return broadcast(x, shape, dimsExcept(shape.size(), dropped));
}

Value Emitter::reduce(ir::ReduceKind kind, Value x, Dims dims) {
  return dims.empty() ? x : op<ir::ReduceOp>(kind, x, dims).getResult();
}

Value Emitter::reshape(Value x, Dims shape) {
  if (shapeOf(x) == shape)
    return x;
  return op<ir::ReshapeOp>(RankedTensorType::get(shape, tensorType(x).getElementType()), x);
}

Value Emitter::matmul(Value x, Value y, bool transA, bool transB) { return op<ir::MatmulOp>(x, y, transA, transB); }

} // namespace cleave::passes
