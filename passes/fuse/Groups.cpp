// Maintains groups of ops and their order.
#include "passes/fuse/Groups.h"
#include "ir/graph/Graph.h"
#include "passes/codegen/nest/FromFusion.h"

#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/SmallPtrSet.h"

#include <algorithm>

namespace cleave::passes {

constexpr int64_t room = int64_t{1} << 24; ///< initial distance between neighbouring labels
constexpr int64_t least = 1 << 8;          ///< distance after relabelling

/// How many elements of its operand make an element of a reduction; 1 for other ops.
static int64_t reducedBy(mlir::Operation *op) {
  auto reduce = mlir::dyn_cast<ir::ReduceOp>(op);
  if (!reduce)
    return 1;
  const auto elements = [](mlir::Value value) {
    return mlir::cast<mlir::RankedTensorType>(value.getType()).getNumElements();
  };
  return elements(reduce.getOperand()) / std::max<int64_t>(elements(reduce.getResult()), 1);
}

Groups::Groups(mlir::Block &block) {
  int effect = -1;
  for (mlir::Operation &op : block.without_terminator()) {
    append(&op);
    linkAfter(static_cast<int>(groups.size()) - 1, last);
    groups.back().fusible = kernel::isFusible(&op);
    if (mlir::isMemoryEffectFree(&op))
      continue;
    if (effect >= 0)
      nextEffect[effect] = last;
    effect = last;
  }
  rebuildEdges(order());
}

void Groups::append(mlir::Operation *op) {
  const int id = static_cast<int>(groups.size());
  groups.emplace_back().ops = {op};
  groups.back().reduced = reducedBy(op);
  parent.push_back(id);
  places.emplace_back();
  seen.push_back(0);
  unit[op] = id;
}

std::vector<int> Groups::order() const {
  std::vector<int> ids;
  for (int id = first; id >= 0; id = places[static_cast<size_t>(id)].after)
    ids.push_back(id);
  return ids;
}

void Groups::unlink(int id) {
  const Place at = place(id);
  (at.before < 0 ? first : place(at.before).after) = at.after;
  (at.after < 0 ? last : place(at.after).before) = at.before;
}

void Groups::linkAfter(int id, int at) {
  const int next = at < 0 ? first : place(at).after;
  place(id) = {0, at, next};
  (at < 0 ? first : place(at).after) = id;
  (next < 0 ? last : place(next).before) = id;
  labelAfter(id);
}

/// Gives `id` a label between its neighbours. If there is no gap, relabels as many successors as necessary.
void Groups::labelAfter(int id) {
  const int before = place(id).before, next = place(id).after;
  const int64_t begin = before >= 0 ? place(before).label : next >= 0 ? place(next).label - 2 * room : 0;
  const int64_t gap = next >= 0 ? place(next).label - begin : 2 * room;
  place(id).label = begin + std::max<int64_t>(gap / 2, 1);
  int64_t label = place(id).label;
  for (int up = next; up >= 0 && place(up).label <= label; up = place(up).after)
    place(up).label = label += least;
}

int Groups::find(int id) const {
  while (parent[static_cast<size_t>(id)] != id) {
    int &up = parent[static_cast<size_t>(id)];
    up = parent[static_cast<size_t>(up)];
    id = up;
  }
  return id;
}

int Groups::groupOf(mlir::Operation *op) const {
  auto it = op ? unit.find(op) : unit.end();
  return it == unit.end() ? -1 : find(it->second);
}

void Groups::rebuildEdges(const std::vector<int> &ids) {
  for (int id : ids) {
    Group &g = groups[static_cast<size_t>(id)];
    llvm::SetVector<int> next;
    for (mlir::Operation *op : g.ops)
      for (mlir::Operation *user : op->getUsers())
        if (int other = groupOf(user); other >= 0 && other != id)
          next.insert(other);
    if (auto effect = nextEffect.find(id); effect != nextEffect.end())
      next.insert(effect->second);
    g.successors.assign(next.begin(), next.end());
  }
}

namespace {

using Inside = llvm::SmallPtrSet<mlir::Operation *, 32>;

std::vector<mlir::Value> fromOutside(const std::vector<mlir::Operation *> &ops, const Inside &inside) {
  llvm::SmallSetVector<mlir::Value, 8> values;
  for (mlir::Operation *op : ops)
    for (mlir::Value operand : op->getOperands())
      if (mlir::Operation *from = operand.getDefiningOp(); !from || !inside.count(from))
        values.insert(operand);
  return {values.begin(), values.end()};
}

std::vector<mlir::Value> usedOutside(const std::vector<mlir::Operation *> &ops, const Inside &inside) {
  std::vector<mlir::Value> values;
  for (mlir::Operation *op : ops)
    if (llvm::any_of(op->getUsers(), [&](mlir::Operation *user) { return !inside.count(user); }))
      values.push_back(op->getResult(0));
  return values;
}

} // namespace

std::vector<mlir::Value> Groups::inputs(const std::vector<mlir::Operation *> &ops) const {
  return fromOutside(ops, Inside(ops.begin(), ops.end()));
}

std::vector<mlir::Value> Groups::outputs(const std::vector<mlir::Operation *> &ops) const {
  return usedOutside(ops, Inside(ops.begin(), ops.end()));
}

Groups::Border Groups::border(const std::vector<mlir::Operation *> &ops) const {
  const Inside inside(ops.begin(), ops.end());
  return {fromOutside(ops, inside), usedOutside(ops, inside)};
}

/// Whether a path of two or more edges connects the groups; `between`: the groups reached from `from` before `to`.
bool Groups::reachable(int from, int to, std::vector<int> &between) {
  ++searches;
  std::vector<int> open{from};
  bool found = false;
  while (!open.empty()) {
    int id = open.back();
    open.pop_back();
    for (int raw : groups[static_cast<size_t>(id)].successors) {
      int next = find(raw);
      if (next == to)
        found |= id != from;
      if (next == to || next == id || positionOf(next) > positionOf(to) || seen[static_cast<size_t>(next)] == searches)
        continue;
      seen[static_cast<size_t>(next)] = searches;
      between.push_back(next);
      open.push_back(next);
    }
    if (found)
      return true;
  }
  return false;
}

bool Groups::mayMerge(int a, int b) {
  std::vector<int> between;
  return !reachable(a, b, between);
}

bool Groups::merge(int &a, int &b) {
  if (positionOf(a) > positionOf(b))
    std::swap(a, b);
  std::vector<int> later;
  if (reachable(a, b, later))
    return false;
  // Moves groups that depend on a behind the merged group; all others in between stay before it.
  std::sort(later.begin(), later.end(), [&](int x, int y) { return positionOf(x) < positionOf(y); });
  unlink(a);
  for (int at = b; int id : later) {
    unlink(id);
    linkAfter(id, at);
    at = id;
  }

  Group &from = groups[static_cast<size_t>(a)], &to = groups[static_cast<size_t>(b)];
  to.ops.insert(to.ops.begin(), from.ops.begin(), from.ops.end());
  to.successors.insert(to.successors.end(), from.successors.begin(), from.successors.end());
  for (int &s : to.successors)
    s = find(s);
  parent[static_cast<size_t>(a)] = b;
  std::sort(to.successors.begin(), to.successors.end());
  to.successors.erase(std::unique(to.successors.begin(), to.successors.end()), to.successors.end());
  std::erase_if(to.successors, [&](int s) { return s == a || s == b; });
  to.reduced = std::max(from.reduced, to.reduced);
  from = {};
  ++to.version;
  to.cost = -1;
  return true;
}

int Groups::insert(mlir::Operation *op, int at, bool after) {
  append(op);
  const int id = static_cast<int>(groups.size()) - 1;
  linkAfter(id, after ? at : place(at).before);
  return id;
}

void Groups::erase(int id) {
  unlink(id);
  groups[static_cast<size_t>(id)] = {};
}

void Groups::setOps(int id, std::vector<mlir::Operation *> ops) {
  Group &g = groups[static_cast<size_t>(id)];
  g.reduced = 1;
  for (mlir::Operation *op : ops) {
    unit[op] = id;
    g.reduced = std::max(g.reduced, reducedBy(op));
  }
  g.ops = std::move(ops);
  ++g.version;
  g.cost = -1;
}

} // namespace cleave::passes
