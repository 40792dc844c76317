// Calls the builder of the rule of each op.
#include "partitioner/annotate/RuleOf.h"

#include "ir/graph/Graph.h"
#include "runtime/base/Error.h"

#include "llvm/ADT/TypeSwitch.h"

#include <cmath>
#include <fmt/format.h>

using namespace mlir;

namespace cleave::partitioner {
namespace {

RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }
std::vector<int64_t> shapeOf(Value value) { return typeOf(value).getShape().vec(); }
size_t rankOf(Value value) { return typeOf(value).getRank(); }

template <typename Values> std::vector<size_t> ranksOf(Values values) {
  std::vector<size_t> ranks;
  for (Value value : values)
    ranks.push_back(rankOf(value));
  return ranks;
}

bool isGradientTerm(Value value) {
  return llvm::all_of(value.getUsers(), [](Operation *user) {
    return isa<func::ReturnOp>(user) || (isa<ir::AddOp>(user) && isGradientTerm(user->getResult(0)));
  });
}

// Whether a cast widens a gradient, computed by a product in a half type, to its parameter's f32. Such a cast passes
// partial sums on: they are accumulated over the microbatches, and summed over the ranks once per iteration, in f32.
// (Other casts do not pass sums on, because messages would then carry the wider type.)
bool widensGradient(Operation *op) {
  auto cast = dyn_cast<ir::CastOp>(op);
  auto width = [](Value value) { return getElementTypeOrSelf(value).getIntOrFloatBitWidth(); };
  return cast && op->hasAttr(ir::attr::phase) && width(cast.getResult()) > width(cast.getInput()) &&
         isa<FloatType>(getElementTypeOrSelf(cast.getInput())) && isGradientTerm(cast.getResult());
}

// Whether a division finishes a statistic such as a mean. Its sum must be reduced first and divided once: quotients of
// partial sums are rounded separately, and for equal elements x - mean, which norms multiply by up to 1 / sqrt(eps),
// would not be 0. Division by a power of two is exact. Divisions of gradients may pass sums on, since gradients of
// parameters are summed once per iteration.
bool finishesStatistic(Operation *op) {
  const std::optional<double> divisor = isa<ir::DivOp>(op) ? ir::splatOf(op->getOperand(1)) : std::nullopt;
  int exponent = 0;
  return divisor && !op->hasAttr(ir::attr::phase) && std::abs(std::frexp(*divisor, &exponent)) != 0.5;
}

OpRule elementwise(Operation *op) {
  SumPassing sums = SumPassing::None;
  if (isa<ir::AddOp, ir::SubOp, ir::NegOp, ir::ShardHintOp>(op) || widensGradient(op))
    sums = SumPassing::Linear;
  else if (isa<ir::MulOp>(op))
    sums = SumPassing::Product;
  else if (isa<ir::DivOp>(op) && !finishesStatistic(op))
    sums = SumPassing::Quotient;
  return elementwiseRule(rankOf(op->getResult(0)), op->getNumOperands(), op->getNumResults(), sums);
}

LoopKind loopOf(ir::ReduceKind kind) {
  return kind == ir::ReduceKind::Sum ? LoopKind::Sum : kind == ir::ReduceKind::Max ? LoopKind::Max : LoopKind::Min;
}

OpRule concat(ir::ConcatOp op) {
  std::vector<std::vector<int64_t>> shapes;
  for (Value input : op.getInputs())
    shapes.push_back(shapeOf(input));
  return concatRule(shapes, op.getDim());
}

// The dimension of the channels of an activation, and of the input channels of a weight.
template <typename Op> int channelDim(Op op) { return op.getChannelsLast() ? 3 : 1; }

OpRule samplesAnd(size_t other, Operation *op) {
  return samplesRule(ranksOf(op->getOperands()), ranksOf(op->getResults()), other);
}

OpRule attention(ir::AttentionOp op) {
  OpRule rule = samplesAnd(1, op);
  rule.productBatches = {rule.operands[0][1].loop};
  return rule;
}

// The workspace has a library's private format, so it alone decides how the op is split.
OpRule maxPoolGrad(ir::MaxPool2dGradOp op) {
  OpRule rule = samplesAnd(channelDim(op), op);
  rule.leader = static_cast<int>(op.getWorkspaceMutable().getOperandNumber());
  return rule;
}

} // namespace

OpKind kindOf(Operation *op) {
  return llvm::TypeSwitch<Operation *, OpKind>(op)
      .Case<ir::ConstantOp, ir::IotaOp, ir::RandomUniformOp>([](auto) { return OpKind::Free; })
      .Case([](ir::ReshapeOp) { return OpKind::Reshape; })
      .Case([](ir::BroadcastOp) { return OpKind::Broadcast; })
      .Case([](ir::CastOp) { return OpKind::Cast; })
      .Case([](ir::TransposeOp) { return OpKind::Transpose; })
      .Case([](ir::SliceOp) { return OpKind::Slice; })
      .Case([](ir::ConcatOp) { return OpKind::Concat; })
      .Case([](ir::AddOp) { return OpKind::Add; })
      .Case([](ir::ShardHintOp) { return OpKind::Mark; })
      .Case([](func::ReturnOp) { return OpKind::Return; })
      .Default([](Operation *o) { return o->hasTrait<OpTrait::Elementwise>() ? OpKind::Elementwise : OpKind::Other; });
}

std::optional<OpRule> ruleOf(Operation *op) {
  const OpKind kind = kindOf(op);
  if (kind == OpKind::Free || kind == OpKind::Reshape || kind == OpKind::Return)
    return std::nullopt;
  if (isElementwise(kind) || kind == OpKind::Mark)
    return elementwise(op);
  return llvm::TypeSwitch<Operation *, OpRule>(op)
      .Case([](ir::BroadcastOp o) { return broadcastRule(o.getDims().vec(), rankOf(o.getResult())); })
      .Case([](ir::ReduceOp o) { return reduceRule(rankOf(o.getInput()), o.getDims().vec(), loopOf(o.getKind())); })
      .Case([](ir::TransposeOp o) { return transposeRule(o.getPermutation().vec()); })
      .Case(
          [](ir::SliceOp o) { return windowRule(shapeOf(o.getInput()), shapeOf(o.getResult()), o.getStarts().vec()); })
      .Case([](ir::PadOp o) { return windowRule(shapeOf(o.getInput()), shapeOf(o.getResult()), o.getLow().vec()); })
      .Case([](ir::ConcatOp o) { return concat(o); })
      .Case([](ir::GatherOp o) { return gatherRule(rankOf(o.getResult()), o.getDim()); })
      .Case([](ir::ScatterAddOp o) { return scatterAddRule(rankOf(o.getResult()), o.getDim()); })
      .Case([](ir::EmbeddingOp o) { return embeddingRule(rankOf(o.getIds())); })
      .Case([](ir::EmbeddingGradOp o) { return embeddingGradRule(rankOf(o.getIds())); })
      .Case([](ir::MatmulOp o) { return matmulRule(rankOf(o.getA()), rankOf(o.getB()), o.getTransA(), o.getTransB()); })
      .Case([](ir::Conv2dOp o) { return conv2dRule(channelDim(o), o.getGroups() > 1); })
      .Case([](ir::Conv2dInputGradOp o) { return conv2dInputGradRule(channelDim(o), o.getGroups() > 1); })
      .Case([](ir::Conv2dWeightGradOp o) { return conv2dWeightGradRule(channelDim(o), o.getGroups() > 1); })
      .Case<ir::MaxPool2dOp, ir::AvgPool2dOp, ir::AvgPool2dGradOp>([](auto o) { return samplesAnd(channelDim(o), o); })
      .Case([](ir::MaxPool2dGradOp o) { return maxPoolGrad(o); })
      .Case([](ir::AttentionOp o) { return attention(o); })
      .Case([](ir::AttentionGradOp o) { return samplesAnd(1, o); })
      .Default([](Operation *o) -> OpRule {
        throw Error(Status::Internal, fmt::format("no sharding rule for {}", o->getName().getStringRef().str()));
      });
}

} // namespace cleave::partitioner
