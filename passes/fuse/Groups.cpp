// Groups of ops and their order.
#include "passes/fuse/Groups.h"
#include "passes/codegen/FromFusion.h"

#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/SetVector.h"

#include <algorithm>

namespace cleave::passes {

Groups::Groups(mlir::Block &block) {
  for (mlir::Operation &op : block.without_terminator()) {
    int id = static_cast<int>(groups.size());
    Group g;
    g.ops = {&op};
    g.fusible = kernel::isFusible(&op);
    groups.push_back(std::move(g));
    parent.push_back(id);
    sequence.push_back(id);
    position.push_back(id);
    unit[&op] = id;
  }
  rebuildEdges();
}

int Groups::find(int id) const {
  while (parent[static_cast<size_t>(id)] != id)
    id = parent[static_cast<size_t>(id)];
  return id;
}

int Groups::groupOf(mlir::Operation *op) const {
  auto it = op ? unit.find(op) : unit.end();
  return it == unit.end() ? -1 : find(it->second);
}

void Groups::rebuildEdges() {
  int last = -1; // ops with side effects stay in order
  for (int id : sequence) {
    Group &g = groups[static_cast<size_t>(id)];
    llvm::SetVector<int> next;
    for (mlir::Operation *op : g.ops)
      for (mlir::Operation *user : op->getUsers())
        if (int other = groupOf(user); other >= 0 && other != id)
          next.insert(other);
    g.successors.assign(next.begin(), next.end());
    if (g.ops.size() == 1 && !mlir::isMemoryEffectFree(g.ops[0])) {
      if (last >= 0)
        groups[static_cast<size_t>(last)].successors.push_back(id);
      last = id;
    }
  }
}

std::vector<mlir::Value> Groups::inputs(const std::vector<mlir::Operation *> &ops) const {
  llvm::DenseMap<mlir::Operation *, bool> inside;
  for (mlir::Operation *op : ops)
    inside[op] = true;
  llvm::SetVector<mlir::Value> values;
  for (mlir::Operation *op : ops)
    for (mlir::Value operand : op->getOperands())
      if (mlir::Operation *from = operand.getDefiningOp(); !from || !inside.count(from))
        values.insert(operand);
  return {values.begin(), values.end()};
}

std::vector<mlir::Value> Groups::outputs(const std::vector<mlir::Operation *> &ops) const {
  llvm::DenseMap<mlir::Operation *, bool> inside;
  for (mlir::Operation *op : ops)
    inside[op] = true;
  std::vector<mlir::Value> values;
  for (mlir::Operation *op : ops)
    if (llvm::any_of(op->getUsers(), [&](mlir::Operation *user) { return !inside.count(user); }))
      values.push_back(op->getResult(0));
  return values;
}

/// Whether a path of two steps or more leads from one group to the other; `between`: what `from` reaches before `to`.
bool Groups::reachable(int from, int to, std::vector<int> &between) {
  seen.assign(groups.size(), false);
  std::vector<int> open{from};
  bool found = false;
  while (!open.empty()) {
    int id = open.back();
    open.pop_back();
    for (int raw : groups[static_cast<size_t>(id)].successors) {
      int next = find(raw);
      if (next == to)
        found |= id != from;
      if (next == to || next == id || positionOf(next) > positionOf(to) || seen[static_cast<size_t>(next)])
        continue;
      seen[static_cast<size_t>(next)] = true;
      between.push_back(next);
      open.push_back(next);
    }
    if (found)
      return true;
  }
  return false;
}

void Groups::renumber(size_t first, size_t last) {
  for (size_t i = first; i < last; ++i)
    position[static_cast<size_t>(sequence[i])] = static_cast<int64_t>(i);
}

bool Groups::merge(int &a, int &b) {
  if (positionOf(a) > positionOf(b))
    std::swap(a, b);
  std::vector<int> later;
  if (reachable(a, b, later))
    return false;
  // What depends on a moves behind the merged group; everything else between stays before it.
  auto first = static_cast<size_t>(positionOf(a)), last = static_cast<size_t>(positionOf(b));
  std::vector<int> before, behind;
  for (size_t i = first + 1; i < last; ++i)
    (seen[static_cast<size_t>(sequence[i])] ? behind : before).push_back(sequence[i]);
  size_t at = first;
  for (int id : before)
    sequence[at++] = id;
  sequence[at++] = b;
  for (int id : behind)
    sequence[at++] = id;
  sequence.erase(sequence.begin() + static_cast<long>(at));
  renumber(first, sequence.size());

  Group &from = groups[static_cast<size_t>(a)], &to = groups[static_cast<size_t>(b)];
  to.ops.insert(to.ops.begin(), from.ops.begin(), from.ops.end());
  to.successors.insert(to.successors.end(), from.successors.begin(), from.successors.end());
  for (int &s : to.successors)
    s = find(s);
  parent[static_cast<size_t>(a)] = b;
  std::sort(to.successors.begin(), to.successors.end());
  to.successors.erase(std::unique(to.successors.begin(), to.successors.end()), to.successors.end());
  std::erase_if(to.successors, [&](int s) { return s == a || s == b; });
  from = {};
  ++to.version;
  to.cost = -1;
  return true;
}

int Groups::insert(mlir::Operation *op, int at, bool after) {
  int id = static_cast<int>(groups.size());
  Group g;
  g.ops = {op};
  groups.push_back(std::move(g));
  parent.push_back(id);
  position.push_back(0);
  unit[op] = id;
  size_t where = static_cast<size_t>(positionOf(at)) + (after ? 1 : 0);
  sequence.insert(sequence.begin() + static_cast<long>(where), id);
  renumber(where, sequence.size());
  return id;
}

void Groups::erase(int id) {
  auto where = static_cast<size_t>(positionOf(id));
  sequence.erase(sequence.begin() + static_cast<long>(where));
  renumber(where, sequence.size());
  groups[static_cast<size_t>(id)] = {};
}

void Groups::setOps(int id, std::vector<mlir::Operation *> ops) {
  Group &g = groups[static_cast<size_t>(id)];
  for (mlir::Operation *op : ops)
    unit[op] = id;
  g.ops = std::move(ops);
  ++g.version;
  g.cost = -1;
}

} // namespace cleave::passes
