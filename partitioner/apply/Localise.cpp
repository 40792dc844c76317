// Local ops: most are clones with local types; constants, iota, embeddings and reshards depend on the position in the
// mesh.
#include "partitioner/apply/Localise.h"

#include "ir/dist/Dist.h"
#include "ir/graph/Graph.h"
#include "partitioner/annotate/Annotate.h"
#include "partitioner/sharding/Messages.h"
#include "runtime/base/Error.h"

#include <fmt/format.h>

using namespace mlir;

namespace cleave::partitioner {

int64_t Localiser::share(const Factor &factor) const {
  return shareSize(factor.size, mesh.size(factor.axes), mesh.linear(factor.axes, coords));
}

RankedTensorType Localiser::localType(const Sharding &sharding, Type global) const {
  return RankedTensorType::get(sharding.localShape(mesh, coords), getElementTypeOrSelf(global));
}

RankedTensorType Localiser::localType(Value global) const {
  RankedTensorType &type = types[{shardingAttrOf(global), global.getType()}];
  if (!type)
    type = localType(shardingOf(global), global.getType());
  return type;
}

SmallVector<Value> Localiser::allReduce(Location loc, ValueRange values, std::vector<std::string> axes,
                                        PartialKind kind, const std::vector<int64_t> &stages) {
  std::erase_if(axes, [&](const std::string &axis) { return mesh.size(axis) == 1; });
  if (axes.empty() || values.empty())
    return SmallVector<Value>(values.begin(), values.end());
  std::vector<std::string> ordered; // in the mesh's order
  for (const MeshAxis &axis : mesh.axes)
    if (llvm::is_contained(axes, axis.name))
      ordered.push_back(axis.name);
  SmallVector<StringRef> names(ordered.begin(), ordered.end());
  auto op = dist::AllReduceOp::create(builder, loc, values.getTypes(), values, builder.getStrArrayAttr(names),
                                      builder.getStringAttr(text(kind)),
                                      stages.empty() ? nullptr : builder.getDenseI64ArrayAttr(stages));
  return SmallVector<Value>(op.getResults().begin(), op.getResults().end());
}

Value Localiser::reshaped(Location loc, Value local, ArrayRef<int64_t> shape) {
  if (ir::tensorType(local).getShape() == shape)
    return local;
  return ir::ReshapeOp::create(builder, loc, RankedTensorType::get(shape, ir::tensorType(local).getElementType()),
                               local);
}

// The shape with the dimension viewed as [outer, size, inner] around one factor.
static SmallVector<int64_t> opened(ArrayRef<int64_t> shape, int64_t dim, int64_t outer, int64_t size, int64_t inner) {
  SmallVector<int64_t> result(shape.begin(), shape.begin() + dim);
  result.append({outer, size, inner});
  result.append(shape.begin() + dim + 1, shape.end());
  return result;
}

// The numbers of elements around factor `f` of a dimension: the products of the sizes before and after it.
static std::pair<int64_t, int64_t> around(ArrayRef<int64_t> sizes, size_t f) {
  return {llvm::product_of(sizes.take_front(f), int64_t(1)), llvm::product_of(sizes.drop_front(f + 1), int64_t(1))};
}

Value Localiser::alongFactor(Location loc, Value local, int64_t dim, ArrayRef<int64_t> sizes, size_t f, int64_t after,
                             CollectiveMaker make) {
  const auto [outer, inner] = around(sizes, f);
  SmallVector<int64_t> shape(ir::tensorType(local).getShape());
  bool alone = outer == 1 && inner == 1;
  Value input = alone ? local : reshaped(loc, local, opened(shape, dim, outer, sizes[f], inner));
  int64_t at = alone ? dim : dim + 1;
  SmallVector<int64_t> made(ir::tensorType(input).getShape());
  made[at] = after;
  shape[dim] = outer * after * inner;
  return reshaped(loc, make(RankedTensorType::get(made, ir::tensorType(local).getElementType()), input, at), shape);
}

DenseI64ArrayAttr Localiser::sharesOf(const Factor &factor) {
  int64_t parts = mesh.size(factor.axes);
  SmallVector<int64_t> shares;
  for (int64_t i = 0; i < parts; ++i)
    shares.push_back(shareSize(factor.size, parts, i));
  return builder.getDenseI64ArrayAttr(shares);
}

ArrayAttr Localiser::axesOf(const Factor &factor) {
  return builder.getStrArrayAttr(SmallVector<StringRef>(factor.axes.begin(), factor.axes.end()));
}

std::vector<int64_t> Localiser::localSizes(const DimSharding &dim) const {
  std::vector<int64_t> sizes;
  for (const Factor &factor : dim.factors)
    sizes.push_back(share(factor));
  return sizes;
}

Value Localiser::gather(Location loc, Value local, const ReshardStep &step) {
  const auto [dim, f] = step.place;
  const Factor &factor = step.dim.factors[f];
  return alongFactor(loc, local, static_cast<int64_t>(dim), localSizes(step.dim), f, factor.size,
                     [&](Type type, Value input, int64_t at) -> Value {
                       return dist::AllGatherOp::create(builder, loc, type, input, axesOf(factor),
                                                        builder.getI64IntegerAttr(at), sharesOf(factor));
                     });
}

Value Localiser::slice(Location loc, Value local, const ReshardStep &step) {
  const auto [dim, f] = step.place;
  const std::vector<int64_t> sizes = localSizes(step.dim);
  const auto [outer, inner] = around(sizes, f);
  SmallVector<int64_t> shape(ir::tensorType(local).getShape());
  shape[dim] = outer * sizes[f] * inner;
  const Factor &factor = step.dim.factors[f];
  return dist::ShardSliceOp::create(builder, loc, RankedTensorType::get(shape, ir::tensorType(local).getElementType()),
                                    local, axesOf(factor), static_cast<int64_t>(dim), outer, factor.size, inner);
}

// The value with its dimensions in another order.
static Value permuted(OpBuilder &builder, Location loc, Value value, ArrayRef<int64_t> permutation) {
  if (llvm::equal(permutation, llvm::seq<int64_t>(0, static_cast<int64_t>(permutation.size()))))
    return value;
  const auto type = ir::tensorType(value);
  SmallVector<int64_t> shape;
  for (const int64_t dim : permutation)
    shape.push_back(type.getShape()[dim]);
  return ir::TransposeOp::create(builder, loc, RankedTensorType::get(shape, type.getElementType()), value,
                                 builder.getDenseI64ArrayAttr(permutation));
}

// Views the value so that a dimension of its own has a block for each member (a part of the factor that becomes split),
// brings it to the front, exchanges the blocks, and puts it before the shares of the factor that becomes whole.
Value Localiser::allToAll(Location loc, Value local, const ReshardStep &step) {
  const int64_t members = mesh.size(step.axes);
  const std::vector<int64_t> gathered = localSizes(step.dim), split = localSizes(step.toDim);
  const ArrayRef<int64_t> before(ir::tensorType(local).getShape());
  SmallVector<int64_t> view, after(before);
  int64_t blocks = 0, shares = 0; // dimensions of the view: the blocks; in front of which they go later
  const auto add = [&](int64_t size) {
    if (size > 1)
      view.push_back(size);
  };
  for (size_t d = 0; d < before.size(); ++d) {
    if (d == step.place.dim) {
      const auto [outer, inner] = around(gathered, step.place.factor);
      add(outer);
      shares = static_cast<int64_t>(view.size());
      view.push_back(gathered[step.place.factor]), add(inner);
      after[d] = before[d] * members;
    } else if (d == step.to.dim) {
      const auto [outer, inner] = around(split, step.to.factor);
      add(outer);
      blocks = static_cast<int64_t>(view.size());
      view.push_back(members), add(split[step.to.factor] * inner);
      after[d] = before[d] / members;
    } else {
      add(before[d]);
    }
  }
  SmallVector<int64_t> toFront = {blocks}, back;
  for (int64_t d = 0; d < static_cast<int64_t>(view.size()); ++d)
    if (d != blocks)
      toFront.push_back(d);
  for (const int64_t d : ArrayRef<int64_t>(toFront).drop_front()) {
    if (d == shares)
      back.push_back(0);
    back.push_back(llvm::find(toFront, d) - toFront.begin());
  }
  Value blocked = permuted(builder, loc, reshaped(loc, local, view), toFront);
  Value received =
      dist::AllToAllOp::create(builder, loc, blocked.getType(), blocked,
                               builder.getStrArrayAttr(SmallVector<StringRef>(step.axes.begin(), step.axes.end())));
  return reshaped(loc, permuted(builder, loc, received, back), after);
}

Value Localiser::reduceScatter(Location loc, Value local, FactorPlace at, const Sharding &to, PartialKind kind) {
  std::vector<int64_t> sizes;
  for (const Factor &factor : to.dims[at.dim].factors)
    sizes.push_back(factor.size);
  const Factor &split = to.dims[at.dim].factors[at.factor];
  return alongFactor(
      loc, local, at.dim, sizes, at.factor, share(split), [&](Type type, Value input, int64_t dim) -> Value {
        return dist::ReduceScatterOp::create(builder, loc, type, input, axesOf(split), builder.getI64IntegerAttr(dim),
                                             sharesOf(split), builder.getStringAttr(text(kind)));
      });
}

Value Localiser::reshard(Location loc, Value local, const Sharding &from, const Sharding &to) {
  for (const ReshardStep &step : reshardSteps(mesh, from, to))
    switch (step.kind) {
    case ReshardStep::Kind::AllReduce:
      local = allReduce(loc, local, step.axes, from.partialKind)[0];
      break;
    case ReshardStep::Kind::ReduceScatter:
      local = reduceScatter(loc, local, step.place, to, from.partialKind);
      break;
    case ReshardStep::Kind::Gather:
      local = gather(loc, local, step);
      break;
    case ReshardStep::Kind::AllToAll:
      local = allToAll(loc, local, step);
      break;
    case ReshardStep::Kind::Slice:
      local = slice(loc, local, step);
      break;
    }
  return local;
}

Value Localiser::offset(Operation *op, const DimSharding &dim) {
  if (!dim.split())
    return nullptr;
  Location loc = op->getLoc();
  const Factor &first = dim.factors.front();
  if (dim.factors.size() != 1) {
    auto path = op->getAttrOfType<StringAttr>(ir::attr::path);
    throw userError(fmt::format(
        "sharding of {}: the rows of an embedding are split as a whole (0 = \"tp\"), not by a factor of them",
        path ? path.str() : "an embedding"));
  }
  return dist::ShardOffsetOp::create(builder, loc, RankedTensorType::get({}, builder.getI32Type()),
                                     builder.getI64IntegerAttr(first.size), axesOf(first));
}

Value Localiser::constant(Operation *op) {
  auto value = cast<ir::ConstantOp>(op).getValue();
  RankedTensorType type = localType(op->getResult(0));
  if (auto splat = dyn_cast<DenseElementsAttr>(value); splat && splat.isSplat())
    return ir::ConstantOp::create(builder, op->getLoc(), type,
                                  DenseElementsAttr::get(type, splat.getSplatValue<Attribute>()));
  const Sharding whole = Sharding::replicated(ir::tensorType(op->getResult(0)).getShape());
  return reshard(op->getLoc(), builder.clone(*op)->getResult(0), whole, shardingOf(op->getResult(0)));
}

Value Localiser::iota(Operation *op) {
  auto iota = cast<ir::IotaOp>(op);
  Sharding sharding = shardingOf(iota.getResult());
  const DimSharding &dim = sharding.dims[iota.getDim()];
  RankedTensorType type = localType(iota.getResult());
  if (dim.factors.size() == 1)
    return ir::IotaOp::create(builder, op->getLoc(), type, offset(op, dim), iota.getDimAttr());
  Sharding unsplit = sharding;
  unsplit.dims[iota.getDim()] = {{Factor{ir::tensorType(iota.getResult()).getShape()[iota.getDim()], {}}}};
  Value along = ir::IotaOp::create(builder, op->getLoc(), localType(unsplit, iota.getResult().getType()), Value(),
                                   iota.getDimAttr());
  return reshard(op->getLoc(), along, unsplit, sharding);
}

Operation *Localiser::copy(Operation *op, ValueRange operands) {
  Operation *local = builder.insert(op->cloneWithoutRegions());
  local->setOperands(operands);
  for (auto [result, global] : llvm::zip_equal(local->getResults(), op->getResults()))
    result.setType(localType(global));
  return local;
}

Value Localiser::lookup(Operation *op, Value table, ValueRange operands) {
  SmallVector<Value> all(operands);
  if (Value start = offset(op, shardingOf(table).dims[0]))
    all.push_back(start);
  return copy(op, all)->getResult(0);
}

// Converts the start or padding of a window from the global to the local dimension. A window covers whole runs of the
// dimension (see windowRule in partitioner/sharding/Rules.h), and this rank holds the same part of each run.
static SmallVector<int64_t> localOf(ArrayRef<int64_t> counts, Value global, Value local) {
  SmallVector<int64_t> result;
  for (auto [count, whole, here] :
       llvm::zip(counts, ir::tensorType(global).getShape(), ir::tensorType(local).getShape()))
    result.push_back(count * here / whole);
  return result;
}

Value Localiser::slice(Operation *op, Value operand) {
  auto local = cast<ir::SliceOp>(copy(op, operand));
  local.setStarts(localOf(local.getStarts(), op->getOperand(0), operand));
  local.setSizes(ir::tensorType(local.getResult()).getShape());
  return local.getResult();
}

Value Localiser::pad(Operation *op, ValueRange operands) {
  auto local = cast<ir::PadOp>(copy(op, operands));
  local.setLow(localOf(local.getLow(), op->getResult(0), local.getResult()));
  local.setHigh(localOf(local.getHigh(), op->getResult(0), local.getResult()));
  return local.getResult();
}

// Sets attributes that record the origin of local values; the sharding only if the local value is a piece of the global
// one.
static void describe(Operation *from, ArrayRef<Type> pieces, Operation *to) {
  NamedAttrList attributes(to->getDiscardableAttrDictionary());
  for (NamedAttribute attribute : from->getDiscardableAttrs())
    if (attribute.getName() != dist::attr::shardings)
      attributes.set(attribute.getName(), attribute.getValue());
  if (to->getResultTypes() == TypeRange(pieces)) {
    SmallVector<Attribute> globals;
    for (Value result : from->getResults())
      globals.push_back(TypeAttr::get(result.getType()));
    attributes.set(dist::attr::globals, ArrayAttr::get(from->getContext(), globals));
    attributes.set(dist::attr::shardings, from->getAttr(dist::attr::shardings));
  }
  to->setDiscardableAttrs(attributes.getDictionary(from->getContext()));
}

SmallVector<Value> Localiser::localise(Operation *op, ValueRange operands) {
  if (isa<dist::ReshardOp>(op))
    return {reshard(op->getLoc(), operands[0], shardingOf(op->getOperand(0)), shardingOf(op->getResult(0)))};
  if (isa<ir::ConstantOp>(op))
    return {constant(op)};
  if (isa<ir::IotaOp>(op))
    return {iota(op)};
  if (isa<ir::ShardHintOp>(op))
    return {operands[0]};
  if (auto embedding = dyn_cast<ir::EmbeddingOp>(op))
    return {lookup(op, embedding.getTable(), operands)};
  if (isa<ir::EmbeddingGradOp>(op))
    return {lookup(op, op->getResult(0), operands)};
  if (isa<ir::SliceOp>(op))
    return {slice(op, operands[0])};
  if (isa<ir::PadOp>(op))
    return {pad(op, operands)};
  return SmallVector<Value>(copy(op, operands)->getResults());
}

SmallVector<Value> Localiser::emit(Operation *op, ValueRange operands) {
  Block *block = builder.getInsertionBlock();
  Operation *before =
      builder.getInsertionPoint() == block->begin() ? nullptr : &*std::prev(builder.getInsertionPoint());
  SmallVector<Value> results = localise(op, operands);
  SmallVector<Type> pieces;
  for (Value result : op->getResults())
    pieces.push_back(localType(result));
  auto it = before ? std::next(before->getIterator()) : block->begin();
  for (; it != builder.getInsertionPoint(); ++it)
    describe(op, pieces, &*it);
  return results;
}

} // namespace cleave::partitioner
