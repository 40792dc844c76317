// Adding, moving and erasing ops of a solution.
#include "partitioner/sharding/Draft.h"

#include <algorithm>
#include <utility>

namespace cleave::partitioner {

Draft::Draft(const ShardingProblem &problem) : problem(problem), uses(problem.tensors.size()) {
  solution.problemOps = static_cast<OpId>(problem.ops.size());
  solution.problemTensors = static_cast<TensorId>(problem.tensors.size());
  solution.shardings.assign(problem.tensors.size(), -1);
  solution.operands.reserve(problem.ops.size());
  for (const ProblemOp &op : problem.ops)
    solution.operands.push_back(op.operands);
  for (size_t t = 0; t < problem.tensors.size(); ++t)
    uses[t] = static_cast<int>(problem.tensors[t].uses.size());
  places.resize(problem.ops.size());
  for (OpId op = 0; op < solution.problemOps; ++op)
    places[op] = {op - 1, op + 1 < solution.problemOps ? op + 1 : -1};
  label();
}

ShardingId Draft::intern(Sharding sharding) {
  if (sharding.partialAxes.empty())
    sharding.partialKind = PartialKind::Sum;
  return solution.table.add(std::move(sharding));
}

OpId Draft::makerOf(TensorId tensor) const {
  return tensor < solution.problemTensors ? problem.tensors[tensor].op
                                          : solution.problemOps + (tensor - solution.problemTensors);
}

const ProblemOp *Draft::originOf(OpId op) const {
  if (!solution.isAdded(op))
    return &problem.ops[op];
  const AddedOp &added = solution.addedOp(op);
  return added.copied < 0 ? nullptr : &problem.ops[added.copied];
}

const ProblemOp *Draft::originMaker(TensorId tensor) const {
  const OpId maker = makerOf(tensor);
  return maker < 0 ? nullptr : originOf(maker);
}

void Draft::setOperand(OpId op, size_t i, TensorId tensor) {
  TensorId &operand = solution.isAdded(op) ? added(op).operands[i] : solution.operands[op][i];
  --uses[operand];
  ++uses[tensor];
  operand = tensor;
}

// ---- program order -------------------------------------------------------------------------------------------------

static constexpr int64_t gap = int64_t{1} << 30;

void Draft::label() {
  int64_t at = 0;
  for (OpId op = first; op >= 0; op = places[op].next)
    places[op].label = at += gap;
}

void Draft::unlink(OpId op) {
  const auto [previous, next, label, erased] = places[op];
  (previous < 0 ? first : places[previous].next) = next;
  if (next >= 0)
    places[next].previous = previous;
}

void Draft::link(OpId op, OpId previous, OpId next) {
  const int64_t before = previous < 0 ? 0 : places[previous].label,
                after = next < 0 ? before + 2 * gap : places[next].label;
  places[op] = {previous, next, before + (after - before) / 2};
  (previous < 0 ? first : places[previous].next) = op;
  if (next >= 0)
    places[next].previous = op;
  if (places[op].label == before)
    label();
}

void Draft::moveAfter(OpId op, OpId other) {
  unlink(op);
  link(op, other, places[other].next);
}

// ---- added ops -----------------------------------------------------------------------------------------------------

OpId Draft::add(AddedOp op, ShardingId sharding) {
  for (TensorId operand : op.operands)
    ++uses[operand];
  const OpId id = solution.problemOps + static_cast<OpId>(solution.added.size());
  solution.added.push_back(std::move(op));
  solution.shardings.push_back(sharding);
  uses.push_back(0);
  places.emplace_back();
  return id;
}

TensorId Draft::addReshardAfter(TensorId tensor, ShardingId to, OpId marks, OpId beside) {
  while (solution.isAdded(marks)) {
    const AddedOp &op = solution.addedOp(marks);
    marks = op.copied < 0 ? op.marks : op.copied;
  }
  const OpId op = add({.operands = {tensor}, .marks = marks}, to);
  link(op, beside, beside < 0 ? first : places[beside].next);
  return solution.resultOf(op);
}

TensorId Draft::addReshardBefore(TensorId tensor, ShardingId to, OpId marks, OpId beside) {
  return addReshardAfter(tensor, to, marks, places[beside].previous);
}

OpId Draft::addCopy(OpId op, ShardingId sharding) {
  const OpId copied = solution.isAdded(op) ? solution.addedOp(op).copied : op;
  const OpId copy = add({.copied = copied, .operands = solution.operandsOf(op)}, sharding);
  link(copy, op, places[op].next);
  return copy;
}

// ---- reduce-scatters -----------------------------------------------------------------------------------------------

std::vector<OpId> Draft::reshards() const {
  std::vector<OpId> all;
  for (OpId op = first; op >= 0; op = places[op].next)
    if (isReshard(op))
      all.push_back(op);
  return all;
}

void Draft::mergeSums() {
  std::vector<std::vector<Use>> readers(solution.added.size()); // of the results of added ops
  for (OpId op = first; op >= 0; op = places[op].next)
    for (size_t i = 0; i < operandsOf(op).size(); ++i)
      if (const TensorId operand = operandsOf(op)[i]; operand >= solution.problemTensors)
        readers[operand - solution.problemTensors].push_back({op, static_cast<int>(i)});
  for (OpId op : reshards())
    if (!places[op].erased)
      mergeInto(op, readers);
}

void Draft::mergeInto(OpId sum, std::vector<std::vector<Use>> &readers) {
  std::vector<Use> &users = readers[sum - solution.problemOps];
  const Sharding &partial = of(operandsOf(sum)[0]);
  if (partial.partialAxes.empty() || users.empty())
    return;
  const auto wanted = [&](const Use &use) { return isReshard(use.op) ? idOf(solution.resultOf(use.op)) : -1; };
  const ShardingId to = wanted(users.front());
  const bool same = std::all_of(users.begin(), users.end(), [&](const Use &use) { return wanted(use) == to; });
  if (to < 0 || !same || !scatterPlace(problem.mesh, partial, sharding(to)))
    return;
  const TensorId result = solution.resultOf(sum);
  for (const Use &merged : std::exchange(users, {})) {
    for (const Use &use : readers[merged.op - solution.problemOps]) {
      setOperand(use.op, use.operand, result);
      users.push_back(use);
    }
    unlink(merged.op);
    places[merged.op].erased = true;
  }
  set(result, to);
}

// Renumbers the added ops without the erased ones and returns the solution.
ShardingSolution Draft::finish(std::vector<std::optional<ShardingId>> named) {
  const OpId ops = solution.problemOps;
  const TensorId tensors = solution.problemTensors;
  std::vector<int> number(solution.added.size());
  int left = 0;
  for (size_t i = 0; i < solution.added.size(); ++i) {
    number[i] = left;
    if (places[ops + i].erased)
      continue;
    solution.shardings[tensors + left] = solution.shardings[tensors + i];
    if (left != static_cast<int>(i))
      solution.added[left] = std::move(solution.added[i]);
    ++left;
  }
  solution.added.resize(left);
  solution.shardings.resize(tensors + left);
  const auto renumber = [&](std::vector<TensorId> &operands) {
    for (TensorId &operand : operands)
      if (operand >= tensors)
        operand = tensors + number[operand - tensors];
  };
  for (std::vector<TensorId> &operands : solution.operands)
    renumber(operands);
  for (AddedOp &op : solution.added)
    renumber(op.operands);
  for (OpId op = first; op >= 0; op = places[op].next)
    solution.order.push_back(op < ops ? op : ops + number[op - ops]);
  solution.named = std::move(named);
  return std::move(solution);
}

} // namespace cleave::partitioner
