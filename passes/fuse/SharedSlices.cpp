// Kernels that differ only in the start of slices of their operands, such as those of an unrolled loop, are equal where
// their calls can begin further into the operand. If they cannot, the kernels are made equal: the slices stay outside
// as copies. The number of kernels then does not grow with the number of steps.
#include "ir/graph/Graph.h"
#include "passes/fuse/Rewrites.h"

#include <algorithm>
#include <map>
#include <set>

namespace cleave::passes {

namespace {

constexpr size_t fewest = 4; // minimum number of kernels that justifies the copies

/// Equal for kernels with the same ops, types, attributes and edges, whatever the starts of border slices.
using Signature = std::vector<const void *>;
using Starts = std::vector<std::vector<int64_t>>; // of the border slices, in order

bool isBorderSlice(mlir::Operation *op, const std::vector<mlir::Operation *> &ops) {
  return mlir::isa<ir::SliceOp>(op) &&
         std::find(ops.begin(), ops.end(), op->getOperand(0).getDefiningOp()) == ops.end();
}

/// Discardable attributes (with a dialect prefix) do not affect the computation.
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

/// Removes the border slices marked in `taken` from a group.
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

void peelSharedSlices(Groups &groups, int width) {
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
    std::set<std::string> kernels;
    for (auto &[id, starts] : members)
      if (auto nest = nestOf(groups, groups[id].ops, width))
        kernels.insert(nest->key());
    if (kernels.size() < fewest)
      continue;
    std::vector<bool> taken(members.front().second.size());
    for (size_t i = 0; i < taken.size(); ++i)
      taken[i] = llvm::any_of(members, [&](auto &member) { return member.second[i] != members.front().second[i]; });
    for (auto &[id, starts] : members)
      peel(groups, id, taken);
  }
}

} // namespace cleave::passes
