// The segments before and after the microbatches of an iteration: begin and reduce; eval_begin and eval_reduce.
#include "ir/dist/Dist.h"
#include "ir/graph/Graph.h"
#include "partitioner/annotate/Annotate.h"
#include "partitioner/annotate/Reshard.h"
#include "partitioner/apply/Emit.h"
#include "partitioner/strategy/Buckets.h"

#include <algorithm>

using namespace mlir;

namespace cleave::partitioner {
namespace {

RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

Value zeros(LocalFunction &local, RankedTensorType type) {
  return ir::ConstantOp::create(local.builder, local.func.getLoc(), type,
                                DenseElementsAttr::get(type, local.builder.getZeroAttr(type.getElementType())));
}

bool sharedBy(const ReducedResult &total, int64_t position) { return llvm::is_contained(total.positions, position); }

/// Gradients that are reduced over the same axes in the same type.
struct Bucket {
  std::vector<std::string> axes;
  std::vector<int64_t> positions; // if axis pp is among the axes
  std::vector<const ReducedResult *> gradients;
  Type element;
  SmallVector<Value> values; // slots
  int64_t bytes = 0;         // in the reduction's type
};

/// The axes and positions over which a gradient must still be reduced; no axes if the gradient is complete.
Bucket sumOf(const StepInfo &info, const ReducedResult &gradient) {
  Bucket sum;
  sum.axes = gradient.partialAxes;
  if (gradient.positions.size() > 1) {
    llvm::append_range(sum.axes, axesOf(AxisRole::Pipeline));
    sum.positions = gradient.positions;
  }
  const bool scattered = info.scattered.count(gradient.name); // over dp
  std::erase_if(sum.axes, [&](const std::string &axis) {
    return info.strategy->mesh.size(axis) == 1 || (scattered && roleOf(axis) == AxisRole::Data);
  });
  sum.element = gradient.type.getElementType();
  if (info.reduceType && hasRole(sum.axes, AxisRole::Data))
    sum.element = info.reduceType;
  return sum;
}

/// Buckets in the order in which the backward pass produces the gradients, last layers first. A device with a separate
/// stream for collectives reduces a bucket during the backward pass of earlier layers (Li et al. 2020).
std::vector<Bucket> bucketsOf(const StepInfo &info, LocalFunction &local, int64_t position) {
  std::vector<Bucket> buckets;
  for (const ReducedResult &gradient : llvm::reverse(info.gradients)) {
    if (!sharedBy(gradient, position))
      continue;
    Bucket sum = sumOf(info, gradient);
    if (sum.axes.empty())
      continue;
    Value slot = local.slot(ir::SlotKind::Gradient, info.sumName(gradient.name), gradient.value);
    int64_t bytes = typeOf(slot).getNumElements() * sum.element.getIntOrFloatBitWidth() / 8;
    auto open = std::find_if(buckets.rbegin(), buckets.rend(), [&](const Bucket &b) {
      return b.axes == sum.axes && b.positions == sum.positions && b.element == sum.element;
    });
    if (open == buckets.rend() || open->bytes + bytes > gradientBucketBytes) {
      buckets.push_back(std::move(sum));
      open = buckets.rbegin();
    }
    open->gradients.push_back(&gradient);
    open->values.push_back(slot);
    open->bytes += bytes;
  }
  return buckets;
}

/// Casts `value`, a rank's piece of the gradient; `summed`: axes over which it is reduced.
Value inType(LocalFunction &local, const ReducedResult &gradient, Value value, Type element,
             const std::vector<std::string> &summed) {
  if (typeOf(value).getElementType() == element)
    return value;
  auto op = ir::CastOp::create(local.builder, local.func.getLoc(), typeOf(value).clone(element), value);
  Sharding sharding = shardingOf(gradient.value);
  std::erase_if(sharding.partialAxes, [&](const std::string &axis) { return llvm::is_contained(summed, axis); });
  ir::setRole(op, ir::role::gradients);
  op->setAttr(dist::attr::shardings, local.builder.getArrayAttr(attributeOf(local.builder.getContext(), sharding)));
  op->setAttr(dist::attr::globals,
              local.builder.getArrayAttr(TypeAttr::get(RankedTensorType::get(gradient.type.getShape(), element))));
  return op.getResult();
}

/// Reduces a gradient over dp; every rank keeps the part that it updates.
void scatter(const StepInfo &info, LocalFunction &local, const ReducedResult &gradient, Value sum) {
  const Sharding &to = info.scattered.at(gradient.name);
  Sharding from = shardingOf(gradient.value);
  std::erase_if(from.partialAxes, [](const std::string &axis) { return roleOf(axis) != AxisRole::Data; });
  Type own = typeOf(sum).getElementType();
  Value sent = inType(local, gradient, sum, info.reduceType ? info.reduceType : own, {});
  Value part = local.localiser.reshard(local.func.getLoc(), sent, from, to);
  ir::setRole(part.getDefiningOp(), ir::role::gradients);
  if (typeOf(part).getElementType() != own)
    part = ir::CastOp::create(local.builder, local.func.getLoc(), typeOf(part).clone(own), part);
  local.returns(ir::SlotKind::Gradient, gradient.name, part);
}

/// Reduces the gradients of a bucket, and adds the sums to `sums`. If the reduction's type differs from the gradients',
/// both the operand of each rank and the sum are rounded to it.
void reduceBucket(const StepInfo &info, LocalFunction &local, const Bucket &bucket,
                  std::map<const ReducedResult *, Value> &sums) {
  SmallVector<Value> sent;
  for (auto [gradient, slot] : llvm::zip_equal(bucket.gradients, bucket.values))
    sent.push_back(inType(local, *gradient, slot, bucket.element, {}));
  SmallVector<Value> reduced =
      local.localiser.allReduce(local.func.getLoc(), sent, bucket.axes, PartialKind::Sum, bucket.positions);
  if (Operation *op = reduced[0].getDefiningOp())
    ir::setRole(op, ir::role::gradients);
  for (auto [gradient, sum] : llvm::zip_equal(bucket.gradients, reduced)) {
    Value whole = inType(local, *gradient, sum, typeOf(gradient->value).getElementType(), bucket.axes);
    local.returns(ir::SlotKind::Gradient, info.sumName(gradient->name), whole);
    sums[gradient] = whole;
  }
}

/// Emits collectives in the order in which the backward pass completes their gradients. Collectives run one after the
/// other, so one that waits for a late gradient delays those behind it.
void reduceGradients(const StepInfo &info, LocalFunction &local, int64_t position) {
  const std::vector<Bucket> buckets = bucketsOf(info, local, position);
  std::map<const ReducedResult *, const Bucket *> lastOf; // by the gradient that completes a bucket
  std::map<const ReducedResult *, Value> sums;
  for (const Bucket &bucket : buckets)
    lastOf[bucket.gradients.back()] = &bucket;
  const auto scatterSum = [&](const ReducedResult &gradient) {
    const auto known = sums.find(&gradient);
    scatter(info, local, gradient,
            known != sums.end() ? known->second
                                : local.slot(ir::SlotKind::Gradient, info.sumName(gradient.name), gradient.value));
  };
  const auto scattered = [&](const ReducedResult &gradient) { return info.scattered.count(gradient.name) > 0; };
  for (const ReducedResult &gradient : llvm::reverse(info.gradients)) {
    if (!sharedBy(gradient, position))
      continue;
    if (scattered(gradient) && sumOf(info, gradient).axes.empty())
      scatterSum(gradient);
    const auto found = lastOf.find(&gradient);
    if (found == lastOf.end())
      continue;
    reduceBucket(info, local, *found->second, sums);
    for (const ReducedResult *reduced : found->second->gradients)
      if (scattered(*reduced))
        scatterSum(*reduced);
  }
}

void reduceMetrics(LocalFunction &local, const std::vector<ReducedResult> &totals) {
  std::map<std::vector<std::string>, std::vector<const ReducedResult *>> byAxes;
  for (const ReducedResult &metric : totals) {
    std::vector<std::string> axes = metric.partialAxes;
    llvm::append_range(axes, axesOf(AxisRole::Pipeline));
    byAxes[axes].push_back(&metric);
  }
  for (auto &[axes, metrics] : byAxes) {
    SmallVector<Value> slots;
    for (const ReducedResult *metric : metrics)
      slots.push_back(local.slot(ir::SlotKind::Metric, metric->name, metric->type));
    SmallVector<Value> reduced = local.localiser.allReduce(local.func.getLoc(), slots, axes, PartialKind::Sum);
    if (reduced[0] == slots[0])
      continue;
    ir::setRole(reduced[0].getDefiningOp(), ir::role::metrics);
    for (auto [metric, value] : llvm::zip_equal(metrics, reduced))
      local.returns(ir::SlotKind::Metric, metric->name, value);
  }
}

} // namespace

/// Emits a working copy, starting from the parameter.
static Value workingCopy(LocalFunction &local, Value value) {
  if (Operation *def = value.getDefiningOp())
    return local.localiser.emit(def, workingCopy(local, def->getOperand(0)))[0];
  return local.slot(cast<BlockArgument>(value));
}

void emitBegin(const StepInfo &info, LocalFunction &local, RankClass &rankClass, const WorkingCopies &copies,
               bool eval) {
  for (const ReducedResult &metric : eval ? info.evalMetrics : info.metrics)
    local.returns(ir::SlotKind::Metric, metric.name, zeros(local, metric.type));
  if (!eval && rankClass.position == info.strategy->positionOf(0))
    for (BlockArgument argument : info.unread)
      local.slot(argument);
  if (!eval)
    for (const ReducedResult &metric : info.weightMetrics)
      local.returns(ir::SlotKind::Metric, metric.name, zeros(local, metric.type));
  if (!eval)
    for (const ReducedResult &gradient : info.gradients)
      if (sharedBy(gradient, rankClass.position) &&
          (info.strategy->microbatches > 1 || llvm::count(gradient.makers, rankClass.position) != 1))
        local.returns(ir::SlotKind::Gradient, info.sumName(gradient.name),
                      zeros(local, local.localiser.localType(gradient.value)));
  for (auto [name, last] : copies)
    local.returns(ir::SlotKind::Working, name, workingCopy(local, last->getResult(0)));
  local.finish(rankClass);
}

void emitReduceWeights(const StepInfo &info, ModuleOp module, RankClass &rankClass,
                       const std::vector<int64_t> &coords) {
  LocalFunction local(module, rankClass, {SegmentKind::ReduceWeights}, info.strategy->mesh, coords);
  reduceMetrics(local, info.weightMetrics);
  local.finish(rankClass);
}

void emitReduce(const StepInfo &info, ModuleOp module, RankClass &rankClass, const std::vector<int64_t> &coords,
                bool eval) {
  LocalFunction local(module, rankClass, {eval ? SegmentKind::EvalReduce : SegmentKind::Reduce}, info.strategy->mesh,
                      coords);
  if (!eval)
    reduceGradients(info, local, rankClass.position);
  reduceMetrics(local, eval ? info.evalMetrics : info.metrics);
  local.finish(rankClass);
}

} // namespace cleave::partitioner
