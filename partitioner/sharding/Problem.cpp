// Builds problems, and derives simple facts from them.
#include "partitioner/sharding/Problem.h"

#include <algorithm>

namespace cleave::partitioner {

bool splitsSequence(const MarkedDims &marked) {
  if (marked.size() != sequenceRank || !marked[sequenceDim])
    return false;
  const std::vector<Factor> &factors = marked[sequenceDim]->factors;
  return std::any_of(factors.begin(), factors.end(), [](const Factor &factor) {
    return std::find(factor.axes.begin(), factor.axes.end(), sequenceAxis) != factor.axes.end();
  });
}

bool isElementwise(OpKind kind) { return kind == OpKind::Cast || kind == OpKind::Add || kind == OpKind::Elementwise; }

size_t RuleHash::operator()(const OpRule &rule) const {
  size_t hash = 0;
  const auto add = [&](size_t value) { hash = (hash ^ value) * 0x9e3779b97f4a7c15; };
  add(rule.loops.size());
  for (LoopKind kind : rule.loops)
    add(static_cast<size_t>(kind));
  for (const auto *side : {&rule.operands, &rule.results}) {
    add(side->size());
    for (const std::vector<RuleDim> &dims : *side) {
      add(dims.size());
      for (const RuleDim &dim : dims)
        add(static_cast<size_t>(dim.loop) << 32 ^ static_cast<size_t>(dim.runs));
    }
  }
  add(static_cast<size_t>(rule.sums));
  return hash ^ hash >> 32;
}

TensorId ShardingProblem::addArgument(ProblemTensor tensor, Argument argument) {
  tensors.push_back(std::move(tensor));
  arguments.push_back(std::move(argument));
  return static_cast<TensorId>(tensors.size()) - 1;
}

OpId ShardingProblem::addOp(ProblemOp op, std::vector<ProblemTensor> results) {
  const OpId id = static_cast<OpId>(ops.size());
  for (size_t i = 0; i < op.operands.size(); ++i)
    tensors[op.operands[i]].uses.push_back({id, static_cast<int>(i)});
  op.results.clear();
  for (ProblemTensor &result : results) {
    result.op = id;
    op.results.push_back(static_cast<TensorId>(tensors.size()));
    tensors.push_back(std::move(result));
  }
  ops.push_back(std::move(op));
  return id;
}

void ShardingProblem::addReturn(const std::vector<TensorId> &values, std::vector<Result> descriptions) {
  addOp({.kind = OpKind::Return, .operands = values}, {});
  results = std::move(descriptions);
}

std::vector<bool> rematerialisableTensors(const ShardingProblem &problem) {
  std::vector<bool> rematerialisable(problem.tensors.size());
  for (const ProblemOp &op : problem.ops) {
    const bool all =
        op.kind == OpKind::Free || op.kind == OpKind::Broadcast ||
        (isElementwise(op.kind) && std::all_of(op.operands.begin(), op.operands.end(),
                                               [&](TensorId operand) { return rematerialisable[operand]; }));
    for (TensorId result : op.results)
      rematerialisable[result] = all;
  }
  return rematerialisable;
}

Sharding broadcastOperand(const OpRule &rule, const Sharding &result) {
  Sharding operand;
  for (const RuleDim &dim : rule.operands[0])
    operand.dims.push_back(result.dims[dimOf(rule.results[0], dim.loop)]);
  return operand;
}

} // namespace cleave::partitioner
