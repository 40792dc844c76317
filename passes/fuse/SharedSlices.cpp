// Kernels that differ only in where slices of their operands begin, as the steps of an unrolled loop do, become one:
// the slices stay outside and are copies. So the number of kernels does not grow with the number of steps.
#include "ir/graph/Graph.h"
#include "passes/fuse/Steps.h"

#include <algorithm>
#include <map>
#include <set>

namespace cleave::passes {

namespace {

constexpr size_t fewest = 4; // kernels that are worth the copies

/// What two kernels have in common: ops, types, attributes and who reads whom, but not where border slices begin.
using Signature = std::vector<const void *>;
using Starts = std::vector<std::vector<int64_t>>; // of the border slices, in order

bool isBorderSlice(mlir::Operation *op, const std::vector<mlir::Operation *> &ops) {
  return mlir::isa<ir::SliceOp>(op) &&
         std::find(ops.begin(), ops.end(), op->getOperand(0).getDefiningOp()) == ops.end();
}

/// Attributes that say nothing of what is computed carry a dialect's name.
bool describes(mlir::NamedAttribute attribute) { return attribute.getName().strref().contains('.'); }

std::pair<Signature, Starts> signatureOf(const std::vector<mlir::Operation *> &ops) {
  Signature signature;
  Starts starts;
  std::map<const void *, size_t> numbers;
  const auto number = [&](mlir::Value value) {
    return reinterpret_cast<const void *>(
        numbers.try_emplace(value.getAsOpaquePointer(), numbers.size()).first->second);
  };
  for (mlir::Operation *op : ops) {
    const bool border = isBorderSlice(op, ops);
    signature.push_back(op->getName().getAsOpaquePointer());
    for (mlir::Value operand : op->getOperands()) {
      signature.push_back(number(operand));
      signature.push_back(operand.getType().getAsOpaquePointer());
    }
    for (mlir::Value result : op->getResults()) {
      signature.push_back(number(result));
      signature.push_back(result.getType().getAsOpaquePointer());
    }
    for (mlir::NamedAttribute attribute : op->getAttrDictionary()) {
      if (describes(attribute) || (border && attribute.getName() == "starts"))
        continue;
      signature.push_back(attribute.getName().getAsOpaquePointer());
      signature.push_back(attribute.getValue().getAsOpaquePointer());
    }
    if (border)
      starts.push_back(mlir::cast<ir::SliceOp>(op).getStarts().vec());
  }
  return {std::move(signature), std::move(starts)};
}

/// Takes the border slices out of a group that `taken` marks.
void peel(Groups &groups, int id, const std::vector<bool> &taken) {
  std::vector<mlir::Operation *> ops, slices;
  size_t at = 0;
  for (mlir::Operation *op : groups[id].ops)
    (isBorderSlice(op, groups[id].ops) && taken[at++] ? slices : ops).push_back(op);
  if (!ops.empty() && !isKernel(groups, ops))
    return;
  for (mlir::Operation *slice : slices)
    groups.insert(slice, id, false);
  groups.setOps(id, ops);
  if (ops.empty())
    groups.erase(id);
}

} // namespace

void peelSharedSlices(Groups &groups) {
  std::map<Signature, std::vector<std::pair<int, Starts>>> alike;
  for (int id : groups.order()) {
    const auto &ops = groups[id].ops;
    if (!groups[id].fusible || llvm::none_of(ops, [&](mlir::Operation *op) { return isBorderSlice(op, ops); }))
      continue;
    auto [signature, starts] = signatureOf(ops);
    alike[std::move(signature)].emplace_back(id, std::move(starts));
  }
  for (auto &[signature, members] : alike) {
    std::set<Starts> distinct;
    for (auto &[id, starts] : members)
      distinct.insert(starts);
    if (distinct.size() < fewest)
      continue;
    std::vector<bool> taken(members.front().second.size());
    for (size_t i = 0; i < taken.size(); ++i)
      taken[i] = llvm::any_of(members, [&](auto &member) { return member.second[i] != members.front().second[i]; });
    for (auto &[id, starts] : members)
      peel(groups, id, taken);
  }
}

} // namespace cleave::passes
