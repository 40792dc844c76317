// Combines small all-reduces.
#include "passes/overlap/Combine.h"

#include "ir/dist/Dist.h"
#include "passes/rewrite/ThrowingPass.h"
#include "passes/rewrite/Values.h"

#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/DenseSet.h"

#include <algorithm>
#include <vector>

using namespace mlir;

namespace cleave::passes {

#define GEN_PASS_DEF_COMBINEREDUCTIONSPASS
#include "passes/Passes.h.inc"

namespace {

/// Numbers of all-reduces of a function, in order, that become one.
using Group = std::vector<size_t>;

int64_t bytesOf(ValueRange values) {
  int64_t bytes = 0;
  for (Value value : values)
    bytes += (product(shapeOf(value)) * tensorType(value).getElementTypeBitWidth() + 7) / 8;
  return bytes;
}

std::vector<dist::AllReduceOp> reductionsOf(func::FuncOp function) {
  auto ops = function.getBody().front().getOps<dist::AllReduceOp>();
  return {ops.begin(), ops.end()};
}

bool sameMessage(dist::AllReduceOp a, dist::AllReduceOp b) {
  const Type type = tensorType(a.getInputs()[0]).getElementType();
  const auto hasType = [&](Value value) { return tensorType(value).getElementType() == type; };
  return a.getAxes() == b.getAxes() && a.getKind() == b.getKind() && a.getStagesAttr() == b.getStagesAttr() &&
         llvm::all_of(a.getInputs(), hasType) && llvm::all_of(b.getInputs(), hasType);
}

/// The ops after the first of `reductions` and before the last that depend on one of them, in order.
std::vector<Operation *> dependentsBetween(ArrayRef<dist::AllReduceOp> reductions) {
  std::vector<Operation *> found;
  llvm::DenseSet<Operation *> depends(reductions.begin(), reductions.end());
  Operation *last = reductions.back();
  for (Operation *op = reductions.front()->getNextNode(); op != last; op = op->getNextNode()) {
    if (llvm::any_of(op->getOperands(), [&](Value read) { return depends.contains(read.getDefiningOp()); }) &&
        depends.insert(op).second)
      found.push_back(op);
  }
  return found;
}

bool mayCombine(ArrayRef<dist::AllReduceOp> reductions) {
  int64_t sent = 0, later = 0;
  for (dist::AllReduceOp reduction : reductions)
    sent += bytesOf(reduction.getInputs());
  if (sent > combinedBytes)
    return false;
  llvm::DenseSet<Operation *> moved;
  for (Operation *op : dependentsBetween(reductions)) {
    later += bytesOf(op->getResults());
    if (!isPure(op) || later > combinedBytes)
      return false;
    moved.insert(op);
  }
  return llvm::none_of(reductions, [&](dist::AllReduceOp reduction) {
    return llvm::any_of(reduction.getInputs(), [&](Value input) {
      Operation *maker = input.getDefiningOp();
      return moved.contains(maker) || llvm::is_contained(reductions, maker);
    });
  });
}

/// Each all-reduce joins the last group of its kind if it can.
std::vector<Group> groupsOf(func::FuncOp function) {
  const std::vector<dist::AllReduceOp> reductions = reductionsOf(function);
  std::vector<Group> groups;
  for (size_t i = 0; i < reductions.size(); ++i) {
    auto group = std::find_if(groups.rbegin(), groups.rend(), [&](const Group &other) {
      return sameMessage(reductions[other.front()], reductions[i]);
    });
    if (group != groups.rend()) {
      std::vector<dist::AllReduceOp> together;
      for (size_t member : *group)
        together.push_back(reductions[member]);
      together.push_back(reductions[i]);
      if (mayCombine(together)) {
        group->push_back(i);
        continue;
      }
    }
    groups.push_back({i});
  }
  return groups;
}

void combine(ArrayRef<dist::AllReduceOp> reductions) {
  dist::AllReduceOp first = reductions.front(), last = reductions.back();
  SmallVector<Value> inputs, results;
  for (dist::AllReduceOp reduction : reductions) {
    llvm::append_range(inputs, reduction.getInputs());
    llvm::append_range(results, reduction.getResults());
  }
  Operation *end = last;
  for (Operation *op : dependentsBetween(reductions)) {
    op->moveAfter(end);
    end = op;
  }
  OpBuilder builder(last);
  auto combined = dist::AllReduceOp::create(builder, first.getLoc(), ValueRange(inputs).getTypes(), inputs,
                                            first.getAxesAttr(), first.getKindAttr(), first.getStagesAttr());
  combined->setDiscardableAttrs(first->getDiscardableAttrDictionary());
  carryShardings(results, combined);
  for (auto [old, result] : llvm::zip_equal(results, combined.getResults()))
    old.replaceAllUsesWith(result);
  for (dist::AllReduceOp reduction : reductions)
    reduction->erase();
}

struct CombineReductionsPass : ThrowingPass<impl::CombineReductionsPassBase<CombineReductionsPass>> {
  using ThrowingPass::ThrowingPass;
  void work() override { combineReductions(getOperation()); }
};

} // namespace

void combineReductions(ArrayRef<func::FuncOp> alike) {
  std::vector<std::vector<Group>> all;
  for (func::FuncOp function : alike)
    all.push_back(groupsOf(function));
  if (llvm::any_of(all, [&](const auto &groups) { return groups != all.front(); }))
    return;
  for (func::FuncOp function : alike) {
    const std::vector<dist::AllReduceOp> reductions = reductionsOf(function);
    for (const Group &group : all.front())
      if (group.size() > 1) {
        std::vector<dist::AllReduceOp> members;
        for (size_t member : group)
          members.push_back(reductions[member]);
        combine(members);
      }
  }
}

} // namespace cleave::passes
