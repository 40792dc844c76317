// The distribution dialect: registration and verifiers.
#include "ir/dist/Dist.h"
#include "ir/graph/Discardable.h"
#include "ir/graph/Graph.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

#include <set>

#include "ir/dist/DistDialect.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "ir/dist/DistAttrs.cpp.inc"

#define GET_OP_CLASSES
#include "ir/dist/DistOps.cpp.inc"

using namespace mlir;
using namespace cleave::dist;

void DistDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "ir/dist/DistAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "ir/dist/DistOps.cpp.inc"
      >();
}

/// Whether an op may have results of which the sharding is known and others of which it is not: ops of the local phase
/// that stand for several ops.
static bool standsForSeveral(Operation *op) {
  return isa<cleave::ir::FusionOp, AllReduceOp>(op) || op->getName().getDialectNamespace() == "library";
}

/// An entry for each result, of which the last ones may be missing; unit: unknown.
static LogicalResult verifyEntries(Operation *op, NamedAttribute attribute) {
  auto entries = cast<ArrayAttr>(attribute.getValue());
  if (entries.size() > op->getNumResults())
    return op->emitError("C4: ") << attribute.getName() << " has " << entries.size() << " entries for "
                                 << op->getNumResults() << " results";
  for (Attribute entry : entries)
    if (!(attribute.getName() == attr::shardings ? isa<ShardingAttr>(entry) : isa<TypeAttr>(entry)) &&
        !(isa<UnitAttr>(entry) && standsForSeveral(op)))
      return op->emitError("C4: ") << attribute.getName() << " has the entry " << entry;
  return success();
}

static LogicalResult verifyAttribute(Operation *op, NamedAttribute attribute, cleave::ir::Place place) {
  using namespace cleave::ir;
  using D = DistDialect;
  static const Discardable declared[] = {
      discardable<D::ShardingAttrHelper>(OnArgument), discardable<D::ShardingsAttrHelper>(OnOp),
      discardable<D::GlobalAttrHelper>(OnArgument),   discardable<D::GlobalsAttrHelper>(OnOp),
      discardable<D::GatheredAttrHelper>(OnOp),       discardable<D::StageAttrHelper>(OnFunction),
      discardable<D::ClassAttrHelper>(OnFunction),    discardable<D::SegmentAttrHelper>(OnFunction)};
  if (failed(verifyDiscardable(op, attribute, place, declared)))
    return failure();
  const StringRef name = attribute.getName();
  if (name == cleave::dist::attr::shardings || name == cleave::dist::attr::globals)
    return verifyEntries(op, attribute);
  if (name != cleave::dist::attr::gathered)
    return success();
  const StringRef kept = cast<StringAttr>(attribute.getValue());
  if (kept != gatheredForIteration && kept != gatheredForSegment)
    return op->emitError("C5: ") << name << " must be \"" << gatheredForIteration << "\" or \"" << gatheredForSegment
                                 << "\", found " << attribute.getValue();
  return success();
}
LogicalResult DistDialect::verifyOperationAttribute(Operation *op, NamedAttribute attribute) {
  return verifyAttribute(op, attribute, cleave::ir::placeOf(op));
}
LogicalResult DistDialect::verifyRegionArgAttribute(Operation *op, unsigned, unsigned, NamedAttribute attribute) {
  return verifyAttribute(op, attribute, cleave::ir::OnArgument);
}
LogicalResult DistDialect::verifyRegionResultAttribute(Operation *op, unsigned, unsigned, NamedAttribute attribute) {
  return verifyAttribute(op, attribute, cleave::ir::OnResult);
}

LogicalResult ShardingAttr::verify(function_ref<InFlightDiagnostic()> emitError, StringRef text) {
  std::string why;
  if (!cleave::Sharding::parse(text.str(), &why))
    return emitError() << "sharding \"" << text << "\": " << why;
  return success();
}

const cleave::Sharding *ShardingAttr::forType(Type type) const {
  auto &dialect = static_cast<DistDialect &>(const_cast<Dialect &>(getDialect()));
  std::lock_guard lock(dialect.readMutex);
  auto [entry, fresh] = dialect.read.try_emplace({getAsOpaquePointer(), type.getAsOpaquePointer()});
  std::optional<cleave::Sharding> &sharding = entry->second;
  if (fresh && (sharding = cleave::Sharding::parse(getText().str())) &&
      !sharding->resolve(cast<RankedTensorType>(type).getShape().vec()))
    sharding.reset();
  return sharding ? &*sharding : nullptr;
}

LogicalResult MeshOp::verify() {
  if (getAxes().size() != getSizes().size())
    return emitOpError("C1: ") << getAxes().size() << " names, " << getSizes().size() << " sizes";
  std::set<StringRef> seen;
  for (auto name : getAxes().getAsValueRange<StringAttr>())
    if (!seen.insert(name).second)
      return emitOpError("C2: axis ") << name << " is named twice";
  for (int64_t size : getSizes())
    if (size < 1)
      return emitOpError("C3: an axis has size ") << size;
  return success();
}

LogicalResult AllReduceOp::verify() {
  if (getInputs().empty())
    return emitOpError("C1: no operand");
  if (getInputs().getTypes() != getResults().getTypes())
    return emitOpError("C2: results differ from operands in type");
  if (getAxes().empty())
    return emitOpError("C3: no axis");
  if (!partialKindOf(getKind()))
    return emitOpError("C4: no reduction: ") << getKindAttr();
  return success();
}

// The dimension on the whole side is the sum of `sizes`; on the share side it is one of them.
static LogicalResult verifyShares(Operation *op, Value whole, Value share, int64_t dim, ArrayRef<int64_t> sizes) {
  auto wholeShape = cast<RankedTensorType>(whole.getType()).getShape();
  auto shareShape = cast<RankedTensorType>(share.getType()).getShape();
  int64_t left = dim >= 0 && dim < (int64_t)wholeShape.size() ? wholeShape[dim] : -1;
  for (int64_t s : sizes)
    left = s >= 0 && s <= left ? left - s : -1;
  if (left != 0)
    return op->emitOpError("C1: the shares [") << sizes << "] do not add up to dimension " << dim << " of the whole";
  if (wholeShape.size() != shareShape.size() || !llvm::is_contained(sizes, shareShape[dim]))
    return op->emitOpError("C2: a share's dimension ") << dim << " is none of the sizes";
  return success();
}

LogicalResult AllGatherOp::verify() { return verifyShares(*this, getResult(), getInput(), getDim(), getSizes()); }
LogicalResult ReduceScatterOp::verify() {
  if (!partialKindOf(getKind()))
    return emitOpError("C3: no reduction: ") << getKindAttr();
  return verifyShares(*this, getInput(), getResult(), getDim(), getSizes());
}

LogicalResult AllToAllOp::verify() {
  if (getAxes().empty())
    return emitOpError("C1: no axis");
  if (cast<RankedTensorType>(getInput().getType()).getRank() == 0)
    return emitOpError("C2: a scalar has no blocks");
  return success();
}

LogicalResult ShardSliceOp::verify() {
  auto shape = cast<RankedTensorType>(getInput().getType()).getShape();
  if ((int64_t)getDim() >= (int64_t)shape.size() || (int64_t)(getOuter() * getSize() * getInner()) != shape[getDim()])
    return emitOpError("C1: ") << getOuter() << " x " << getSize() << " x " << getInner() << " is not dimension "
                               << getDim();
  return success();
}
