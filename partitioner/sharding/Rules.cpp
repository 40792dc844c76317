// The rules, a short function per family of ops.
#include "partitioner/sharding/Rules.h"

#include "ir/graph/Graph.h"
#include "runtime/base/Error.h"

#include "llvm/ADT/TypeSwitch.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>

using namespace mlir;

namespace cleave::partitioner {
namespace {

ArrayRef<int64_t> shapeOf(Value value) { return cast<RankedTensorType>(value.getType()).getShape(); }
int64_t rankOf(Value value) { return cast<RankedTensorType>(value.getType()).getRank(); }

// Builds a rule factor by factor.
struct RuleBuilder {
  OpRule rule;
  explicit RuleBuilder(Operation *op) {
    for (Value operand : op->getOperands())
      rule.operands.emplace_back(rankOf(operand));
    for (Value result : op->getResults())
      rule.results.emplace_back(rankOf(result));
  }
  int factor(FactorKind kind) {
    rule.factors.push_back(kind);
    return rule.factors.size() - 1;
  }
  // A factor of the given operand and result dimensions; entries are (index, dimension).
  int tie(FactorKind kind, std::initializer_list<std::pair<int, int>> operands,
          std::initializer_list<std::pair<int, int>> results) {
    int f = factor(kind);
    for (auto [i, d] : operands)
      rule.operands[i][d].factor = f;
    for (auto [i, d] : results)
      rule.results[i][d].factor = f;
    return f;
  }
  // Every dimension not named yet may not be split.
  OpRule finish() {
    for (auto *side : {&rule.operands, &rule.results})
      for (auto &dims : *side)
        for (RuleDim &dim : dims)
          if (dim.factor < 0)
            dim.factor = factor(FactorKind::Whole);
    return rule;
  }
};

OpRule elementwise(Operation *op) {
  RuleBuilder b(op);
  for (int64_t d = 0, rank = rankOf(op->getResult(0)); d < rank; ++d) {
    int f = b.factor(FactorKind::Parallel);
    for (auto &dims : b.rule.operands)
      dims[d].factor = f;
    for (auto &dims : b.rule.results)
      dims[d].factor = f;
  }
  b.rule.linear = isa<ir::AddOp, ir::SubOp, ir::NegOp, ir::ShardHintOp>(op);
  return b.finish();
}

OpRule broadcast(ir::BroadcastOp op) {
  RuleBuilder b(op);
  for (auto [d, to] : llvm::enumerate(op.getDims()))
    b.tie(FactorKind::Parallel, {{0, (int)d}}, {{0, (int)to}});
  for (RuleDim &dim : b.rule.results[0])
    if (dim.factor < 0)
      dim.factor = b.factor(FactorKind::Parallel); // a new dimension: made under any split
  return b.finish();
}

OpRule reduce(ir::ReduceOp op) {
  RuleBuilder b(op);
  FactorKind kind = op.getKind() == ir::ReduceKind::Sum   ? FactorKind::Sum
                    : op.getKind() == ir::ReduceKind::Max ? FactorKind::Max
                                                          : FactorKind::Min;
  int out = 0;
  for (int64_t d = 0; d < rankOf(op.getInput()); ++d)
    if (llvm::is_contained(op.getDims(), d))
      b.tie(kind, {{0, (int)d}}, {});
    else
      b.tie(FactorKind::Parallel, {{0, (int)d}}, {{0, out++}});
  b.rule.linear = kind == FactorKind::Sum;
  return b.finish();
}

OpRule transpose(ir::TransposeOp op) {
  RuleBuilder b(op);
  for (auto [d, from] : llvm::enumerate(op.getPermutation()))
    b.tie(FactorKind::Parallel, {{0, (int)from}}, {{0, (int)d}});
  b.rule.linear = true;
  return b.finish();
}

// slice and pad: a dimension that keeps its size moves along. Another one moves in runs of the largest size at whose
// multiples the window begins and ends, and stays whole where that is one element.
OpRule window(Operation *op, ArrayRef<int64_t> before) {
  RuleBuilder b(op);
  ArrayRef<int64_t> in = shapeOf(op->getOperand(0)), out = shapeOf(op->getResult(0));
  for (size_t d = 0; d < in.size(); ++d) {
    const int64_t inside = std::min(in[d], out[d]), outside = std::max(in[d], out[d]);
    const int64_t run = std::gcd(std::gcd(before[d], inside), outside - before[d] - inside);
    if (run > 1 || inside == outside)
      b.tie(FactorKind::Parallel, {{0, (int)d}}, {{0, (int)d}});
    b.rule.operands[0][d].runs = in[d] / run;
    b.rule.results[0][d].runs = out[d] / run;
  }
  b.rule.linear = true;
  return b.finish();
}

// gather, scatter_add: everything but dimension `dim` moves together.
OpRule along(Operation *op, int64_t dim) {
  RuleBuilder b(op);
  for (int64_t d = 0; d < rankOf(op->getResult(0)); ++d) {
    int f = b.factor(d == dim ? FactorKind::Whole : FactorKind::Parallel);
    for (auto &dims : b.rule.operands)
      dims[d].factor = f;
    b.rule.results[0][d].factor = f;
  }
  return b.finish();
}

// Everything moves together; `dim` in runs of the largest size of which every operand has a multiple.
OpRule concat(ir::ConcatOp op) {
  OpRule rule = along(op, op.getDim());
  const size_t dim = op.getDim();
  int64_t run = 0;
  for (Value input : op.getInputs())
    run = std::gcd(run, shapeOf(input)[dim]);
  if (run == 1)
    return rule;
  rule.factors[rule.results[0][dim].factor] = FactorKind::Parallel;
  for (auto [input, dims] : llvm::zip(op.getInputs(), rule.operands))
    dims[dim].runs = shapeOf(input)[dim] / run;
  rule.results[0][dim].runs = shapeOf(op.getResult())[dim] / run;
  return rule;
}

OpRule embedding(ir::EmbeddingOp op) {
  RuleBuilder b(op);
  int ids = rankOf(op.getIds());
  for (int d = 0; d < ids; ++d)
    b.tie(FactorKind::Parallel, {{1, d}}, {{0, d}});
  int rows = b.tie(FactorKind::Sum, {{0, 0}}, {});
  b.tie(FactorKind::Parallel, {{0, 1}}, {{0, ids}});
  b.rule.parameterOperand = 0;
  b.rule.defaultFactor = rows;
  return b.finish();
}

OpRule embeddingGrad(ir::EmbeddingGradOp op) {
  RuleBuilder b(op);
  int ids = rankOf(op.getIds());
  for (int d = 0; d < ids; ++d)
    b.tie(FactorKind::Sum, {{0, d}, {1, d}}, {});
  b.tie(FactorKind::Parallel, {{0, ids}}, {{0, 1}});
  b.tie(FactorKind::Parallel, {}, {{0, 0}}); // rows: made under any split
  return b.finish();
}

OpRule matmul(ir::MatmulOp op) {
  RuleBuilder b(op);
  int ra = rankOf(op.getA()), rb = rankOf(op.getB()), rc = rankOf(op.getResult());
  bool shared = rb == 2 && ra > 2;
  for (int d = 0; d < ra - 2; ++d)
    if (shared)
      b.tie(FactorKind::Parallel, {{0, d}}, {{0, d}});
    else
      b.tie(FactorKind::Parallel, {{0, d}, {1, d}}, {{0, d}});
  bool ta = op.getTransA(), tb = op.getTransB();
  b.tie(FactorKind::Parallel, {{0, ta ? ra - 1 : ra - 2}}, {{0, rc - 2}});
  b.tie(FactorKind::Sum, {{0, ta ? ra - 2 : ra - 1}, {1, tb ? rb - 1 : rb - 2}}, {});
  int n = b.tie(FactorKind::Parallel, {{1, tb ? rb - 2 : rb - 1}}, {{0, rc - 1}});
  if (rb == 2) {
    b.rule.parameterOperand = 1;
    b.rule.defaultFactor = n;
  }
  return b.finish();
}

// The dimension of the channels of an activation, and of the input channels of a weight.
template <typename Op> int channelDim(Op op) { return op.getChannelsLast() ? 3 : 1; }

// Grouped convolutions keep their channels whole.
OpRule conv2d(ir::Conv2dOp op) {
  RuleBuilder b(op);
  const int c = channelDim(op);
  b.tie(FactorKind::Parallel, {{0, 0}}, {{0, 0}});
  if (op.getGroups() == 1) {
    b.tie(FactorKind::Sum, {{0, c}, {1, c}}, {});
    b.rule.defaultFactor = b.tie(FactorKind::Parallel, {{1, 0}}, {{0, c}});
    b.rule.parameterOperand = 1;
  }
  return b.finish();
}
OpRule conv2dInputGrad(ir::Conv2dInputGradOp op) {
  RuleBuilder b(op);
  const int c = channelDim(op);
  b.tie(FactorKind::Parallel, {{0, 0}}, {{0, 0}});
  if (op.getGroups() == 1) {
    b.tie(FactorKind::Sum, {{0, c}, {1, 0}}, {});
    b.tie(FactorKind::Parallel, {{1, c}}, {{0, c}});
  }
  return b.finish();
}
OpRule conv2dWeightGrad(ir::Conv2dWeightGradOp op) {
  RuleBuilder b(op);
  const int c = channelDim(op);
  b.tie(FactorKind::Sum, {{0, 0}, {1, 0}}, {});
  if (op.getGroups() == 1) {
    b.tie(FactorKind::Parallel, {{0, c}}, {{0, 0}});
    b.tie(FactorKind::Parallel, {{1, c}}, {{0, c}});
  }
  return b.finish();
}

// What moves through every operand and result: samples, and channels of pooling or heads of attention.
OpRule samplesAnd(int other, Operation *op) {
  RuleBuilder b(op);
  for (int d : {0, other}) {
    int f = b.factor(FactorKind::Parallel);
    for (auto *side : {&b.rule.operands, &b.rule.results})
      for (auto &dims : *side)
        dims[d].factor = f;
  }
  return b.finish();
}

} // namespace

size_t dimOf(const std::vector<RuleDim> &dims, int factor) {
  return llvm::find_if(dims, [&](const RuleDim &dim) { return dim.factor == factor; }) - dims.begin();
}

bool isFree(Operation *op) { return isa<ir::ConstantOp, ir::IotaOp, ir::RandomUniformOp>(op); }

std::optional<OpRule> shardingRule(Operation *op) {
  if (isFree(op) || isa<ir::ReshapeOp>(op))
    return std::nullopt;
  if (op->hasTrait<OpTrait::Elementwise>() || isa<ir::ShardHintOp>(op))
    return elementwise(op);
  return llvm::TypeSwitch<Operation *, OpRule>(op)
      .Case([](ir::BroadcastOp o) { return broadcast(o); })
      .Case([](ir::ReduceOp o) { return reduce(o); })
      .Case([](ir::TransposeOp o) { return transpose(o); })
      .Case([](ir::SliceOp o) { return window(o, o.getStarts()); })
      .Case([](ir::PadOp o) { return window(o, o.getLow()); })
      .Case([](ir::ConcatOp o) { return concat(o); })
      .Case<ir::GatherOp, ir::ScatterAddOp>([](auto o) { return along(o, o.getDim()); })
      .Case([](ir::EmbeddingOp o) { return embedding(o); })
      .Case([](ir::EmbeddingGradOp o) { return embeddingGrad(o); })
      .Case([](ir::MatmulOp o) { return matmul(o); })
      .Case([](ir::Conv2dOp o) { return conv2d(o); })
      .Case([](ir::Conv2dInputGradOp o) { return conv2dInputGrad(o); })
      .Case([](ir::Conv2dWeightGradOp o) { return conv2dWeightGrad(o); })
      .Case<ir::MaxPool2dOp, ir::MaxPool2dGradOp, ir::AvgPool2dOp, ir::AvgPool2dGradOp>(
          [](auto o) { return samplesAnd(channelDim(o), o); })
      .Case<ir::AttentionOp, ir::AttentionGradOp>([](auto o) { return samplesAnd(1, o); })
      .Default([](Operation *o) -> OpRule {
        throw Error(Status::Internal, fmt::format("no sharding rule for {}", o->getName().getStringRef().str()));
      });
}

} // namespace cleave::partitioner
