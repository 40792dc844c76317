// Follows the bytes and operations of an op's largest shares.
#include "partitioner/search/LayoutPrices.h"

#include <algorithm>

namespace cleave::partitioner {
namespace {

bool isViewOp(OpKind kind) {
  return kind == OpKind::Reshape || kind == OpKind::Broadcast || kind == OpKind::Transpose || kind == OpKind::Slice ||
         kind == OpKind::Mark || kind == OpKind::Free || kind == OpKind::Return;
}

bool staysInRegisters(OpKind kind) { return isElementwise(kind) || isViewOp(kind); }

} // namespace

LayoutPrices::LayoutPrices(const ShardingProblem &problem, LayoutCosts &costs)
    : problem(problem), costs(costs), moved(problem.tensors.size()) {
  for (TensorId t = 0; t < static_cast<TensorId>(problem.tensors.size()); ++t)
    moved[t] = isMoved(t);
}

ShardingId LayoutPrices::intern(Sharding sharding) {
  if (sharding.partialAxes.empty())
    sharding.partialKind = PartialKind::Sum;
  const ShardingId id = table.add(std::move(sharding));
  while (elements.size() < table.size()) {
    int64_t count = 1;
    for (int64_t size : table[static_cast<ShardingId>(elements.size())].localShape(problem.mesh, origin()))
      count *= size;
    elements.push_back(count);
  }
  return id;
}

int64_t LayoutPrices::reshard(ShardingId from, ShardingId to, int64_t bits) {
  if (from == to)
    return 0;
  const auto [found, fresh] = reshards.try_emplace(std::tuple(from, to, bits), 0);
  if (fresh)
    for (const Message &message : messagesOf(problem.mesh, table[from], table[to], bits))
      found->second += costs.message(message);
  return found->second;
}

int64_t LayoutPrices::op(const ProblemOp &op, const std::vector<ShardingId> &operands,
                         const std::vector<ShardingId> &results) const {
  if (isViewOp(op.kind))
    return 0;
  StepWork work;
  work.kernels = 0;
  for (size_t i = 0; i < op.operands.size(); ++i)
    work.bytes += op.flops > 0 || moved[op.operands[i]] ? bytesOf(op.operands[i], operands[i]) : 0;
  for (size_t r = 0; r < op.results.size(); ++r)
    work.bytes += op.flops > 0 || moved[op.results[r]] ? bytesOf(op.results[r], results[r]) : 0;
  work.kind = WorkClass::Stream;
  if (op.flops > 0)
    describeProduct(op, operands, results, work);
  return costs.work(work, problem.tensors[op.operands[0]].elementBits);
}

int64_t LayoutPrices::update(ShardingId stored, int64_t bits) const {
  StepWork work;
  work.kind = WorkClass::Stream;
  work.kernels = 0;
  work.bytes = 7 * static_cast<double>(elements[stored]) * static_cast<double>(std::max<int64_t>(bits / 8, 1));
  return costs.work(work, bits);
}

/// Whether a tensor is written to memory: kernels keep what only elementwise ops of one pass share.
bool LayoutPrices::isMoved(TensorId tensor) const {
  const ProblemOp *maker = problem.makerOf(tensor);
  if (!maker || !staysInRegisters(maker->kind))
    return true;
  if (maker->kind == OpKind::Free || maker->kind == OpKind::Broadcast)
    return false;
  return std::ranges::any_of(problem.tensors[tensor].uses, [&](const Use &use) {
    const ProblemOp &user = problem.ops[use.op];
    return !isElementwise(user.kind) || user.backward != maker->backward;
  });
}

double LayoutPrices::bytesOf(TensorId tensor, ShardingId sharding) const {
  return static_cast<double>(elements[sharding]) *
         static_cast<double>(std::max<int64_t>(problem.tensors[tensor].elementBits / 8, 1));
}

void LayoutPrices::describeProduct(const ProblemOp &op, const std::vector<ShardingId> &operands,
                                   const std::vector<ShardingId> &results, StepWork &work) const {
  // The share of the operations: of every loop, the share of a dimension that it runs along.
  double share = 1;
  const OpRule &rule = problem.rules[op.rule];
  for (int l = 0; l < static_cast<int>(rule.loops.size()); ++l)
    share *= shareOfLoop(rule, l, op, operands, results);
  work.flops = op.flops * share;
  const std::vector<int64_t> result = table[results[0]].localShape(problem.mesh, origin());
  const size_t rank = result.size();
  work.backward = op.backward;
  if (op.attention) { // [batch, heads, rows, width]
    const std::vector<int64_t> q = table[operands[0]].localShape(problem.mesh, origin());
    work.kind = WorkClass::Attention;
    work.batch = q[0] * q[1], work.m = work.n = q[2], work.k = q[3];
    work.scoreBytes = static_cast<double>(work.batch * work.m * work.n) *
                      static_cast<double>(problem.tensors[op.operands[0]].elementBits / 8);
    return;
  }
  work.kind = WorkClass::Product;
  work.n = result.back();
  const bool convolution = std::ranges::find(rule.loops, LoopKind::Whole) != rule.loops.end(),
             batched = rank > 2 && problem.tensors[op.operands[1]].shape.size() > 2 && !convolution;
  if (convolution) // [samples, ...]: the largest dimension stands for the channels
    work.n = *std::max_element(result.begin() + 1, result.end());
  work.m = batched ? result[rank - 2] : elements[results[0]] / std::max<int64_t>(work.n, 1);
  work.batch = std::max<int64_t>(elements[results[0]] / std::max<int64_t>(work.m * work.n, 1), 1);
  work.k = std::max<int64_t>(
      static_cast<int64_t>(work.flops / 2 / static_cast<double>(std::max<int64_t>(work.m * work.n * work.batch, 1))),
      1);
}

double LayoutPrices::shareOfLoop(const OpRule &rule, int loop, const ProblemOp &op,
                                 const std::vector<ShardingId> &operands,
                                 const std::vector<ShardingId> &results) const {
  const auto share = [&](const std::vector<std::vector<RuleDim>> &side, const std::vector<TensorId> &tensors,
                         const std::vector<ShardingId> &shardings) {
    for (size_t i = 0; i < side.size(); ++i)
      if (const size_t d = dimOf(side[i], loop); d < side[i].size()) {
        double part = 1;
        for (const Factor &factor : table[shardings[i]].dims[d].factors)
          part *= static_cast<double>(shareSize(factor.size, problem.mesh.size(factor.axes), 0)) /
                  static_cast<double>(std::max<int64_t>(factor.size, 1));
        return part;
      }
    return 1.0;
  };
  const double ofOperands = share(rule.operands, op.operands, operands);
  return ofOperands < 1 ? ofOperands : share(rule.results, op.results, results);
}

} // namespace cleave::partitioner
