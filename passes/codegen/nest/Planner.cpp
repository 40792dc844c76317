// The planner: chooses the iteration space, then demands every output at its index and propagates the demand to the
// inputs. A reshape is affine only if loops are split finely enough; a failed reshape may request a loop split, and
// planning then restarts.
#include "passes/codegen/nest/Planner.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace cleave::passes::kernel {

int Planner::fail(const std::string &reason) {
  if (why.empty())
    why = reason;
  return -1;
}

/// The root is the input of the first reduction, otherwise the last output.
bool Planner::chooseRoot() {
  int root = -1;
  bool reduces = false;
  for (size_t i = 0; i < graph.nodes.size() && !reduces; ++i) {
    const Node &n = graph.nodes[i];
    if (n.kind != NodeKind::Reduce || elementCount(n.shape) == elementCount(graph.nodes[n.operands[0]].shape))
      continue;
    reduces = true;
    rootShape = graph.nodes[n.operands[0]].shape;
    reducedDims.assign(rootShape.size(), false);
    for (int64_t d : n.dims)
      reducedDims[d] = true;
  }
  if (!reduces) {
    for (int o : graph.outputs)
      root = std::max(root, o);
    if (root < 0)
      return fail("no outputs") >= 0;
    rootShape = graph.nodes[root].shape;
    reducedDims.assign(rootShape.size(), false);
  }
  for (int64_t size : rootShape)
    factors.push_back(size > 1 ? std::vector<int64_t>{size} : std::vector<int64_t>{});
  return true;
}

void Planner::makeLoops() {
  full = kept = reduced = Expr{};
  keptMask = allMask = 0;
  int64_t stride = 1, keptStride = 1, reducedStride = 1;
  int total = 0;
  for (const auto &f : factors)
    total += static_cast<int>(f.size());
  p.loops.assign(total, Loop{});
  int l = total;
  for (size_t d = factors.size(); d-- > 0;)
    for (size_t k = factors[d].size(); k-- > 0;) {
      int64_t extent = factors[d][k];
      p.loops[--l] = {extent, static_cast<bool>(reducedDims[d])};
      full.coef[l] = stride;
      stride *= extent;
      Expr &part = reducedDims[d] ? reduced : kept;
      int64_t &partStride = reducedDims[d] ? reducedStride : keptStride;
      part.coef[l] = partStride;
      partStride *= extent;
      allMask |= 1u << l;
      if (!reducedDims[d])
        keptMask |= 1u << l;
    }
}

bool Planner::run(LoopNest &nest) {
  if (!chooseRoot())
    return false;
  for (int tries = 0; tries < 12; ++tries) {
    int total = 0;
    for (const auto &f : factors)
      total += static_cast<int>(f.size());
    if (total > maxLoops)
      return fail("too many loops") >= 0;
    p = LoopNest{};
    memo.clear();
    demanded.clear();
    numbers.clear();
    why.clear();
    split = {};
    makeLoops();
    if (attempt()) {
      nest = std::move(p);
      return true;
    }
    if (split.loop < 0)
      return false;
    int l = 0; // find the factor of that loop
    for (auto &f : factors)
      for (size_t k = 0; k < f.size(); ++k, ++l)
        if (l == split.loop) {
          int64_t extent = f[k];
          f[k] = split.inner;
          f.insert(f.begin() + static_cast<long>(k), extent / split.inner);
          l = maxLoops + 1;
          break;
        }
  }
  return false;
}

bool Planner::attempt() {
  bufferOf.assign(graph.nodes.size(), -1);
  scalarOf.assign(graph.nodes.size(), -1);
  int position = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node &n = graph.nodes[i];
    if (n.kind != NodeKind::Input)
      continue;
    if (n.scalar) {
      scalarOf[i] = static_cast<int>(p.scalarInputs.size());
      p.scalarInputs.push_back(position);
    } else {
      bufferOf[i] = static_cast<int>(p.buffers.size());
      p.buffers.push_back(n.type);
      p.bufferSizes.push_back(elementCount(n.shape));
    }
    ++position;
  }
  p.inputs = static_cast<int>(p.buffers.size());
  for (int o : graph.outputs) {
    p.buffers.push_back(graph.nodes[o].type);
    p.bufferSizes.push_back(elementCount(graph.nodes[o].shape));
  }
  return placeOutputs();
}

/// The index at which output `node` is evaluated: the index at which others already demand it, if that visits each
/// element once; otherwise in row-major order.
bool Planner::outputIndex(int node, bool keptOnly, Index &index) {
  const Node &n = graph.nodes[node];
  for (const Index &asked : demanded[node])
    if (isPermutation(linearize(asked, n.shape), keptOnly ? keptMask : allMask, p.loops)) {
      index = asked;
      return true;
    }
  if (!delinearize(keptOnly ? kept : full, n.shape, p.loops, index, split))
    return fail("an output's shape does not fit the iteration space") >= 0;
  return true;
}

bool Planner::placeOutputs() {
  int64_t keptCount = 1, fullCount = 1;
  for (const Loop &l : p.loops) {
    fullCount *= l.extent;
    keptCount *= l.reduced ? 1 : l.extent;
  }
  std::vector<size_t> order(graph.outputs.size());
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return std::pair(-graph.outputs[a], a) < std::pair(-graph.outputs[b], b); });
  for (size_t o : order) {
    int node = graph.outputs[o];
    int64_t count = elementCount(graph.nodes[node].shape);
    if (count != keptCount && count != fullCount)
      return fail("outputs of different sizes") >= 0;
    bool keptOnly = count == keptCount;
    Index index;
    if (!outputIndex(node, keptOnly, index))
      return false;
    int value = demand(node, index, {});
    if (value < 0)
      return false;
    Store store;
    store.value = value;
    store.buffer = p.inputs + static_cast<int>(o);
    store.expr = linearize(index, graph.nodes[node].shape);
    p.stores.push_back(store);
  }
  std::sort(p.stores.begin(), p.stores.end(), [](const Store &a, const Store &b) { return a.buffer < b.buffer; });
  return true;
}

int Planner::intern(LoopValue value) {
  // Neither NaN nor -0 can be found by comparison.
  bool comparable = !std::isnan(value.constant) && !(value.constant == 0 && std::signbit(value.constant));
  if (comparable)
    if (auto it = numbers.find(value); it != numbers.end())
      return it->second;
  int id = static_cast<int>(p.values.size());
  p.values.push_back(value);
  if (comparable)
    numbers.emplace(std::move(value), id);
  return id;
}

int Planner::demand(int node, const Index &index, const Conditions &guards) {
  auto key = std::make_tuple(node, index, guards);
  if (auto it = memo.find(key); it != memo.end())
    return it->second;
  if (std::max(p.values.size(), memo.size()) > 4096) // sums of shifted sums demand few values in many places
    return fail("too large");
  if (guards.empty())
    demanded[node].push_back(index);
  int value = compute(node, index, guards);
  memo.emplace(std::move(key), value);
  return value;
}

int Planner::compute(int node, const Index &index, const Conditions &guards) {
  const Node &n = graph.nodes[node];
  switch (n.kind) {
  case NodeKind::Input:
  case NodeKind::Constant:
    return load(node, index, guards);
  case NodeKind::Iota:
    return iota(n, index, guards);
  case NodeKind::Broadcast: {
    Index inner;
    for (int64_t d : n.dims)
      inner.push_back(index[d]);
    return demand(n.operands[0], inner, guards);
  }
  case NodeKind::Transpose: {
    Index inner(index.size());
    for (size_t i = 0; i < index.size(); ++i)
      inner[n.dims[i]] = index[i];
    return demand(n.operands[0], inner, guards);
  }
  case NodeKind::Slice: {
    Index inner = index;
    for (size_t i = 0; i < index.size(); ++i)
      inner[i].constant += n.dims[i];
    return demand(n.operands[0], inner, guards);
  }
  case NodeKind::Reshape: {
    Index inner;
    if (!reshapeIndex(index, n.shape, graph.nodes[n.operands[0]].shape, p.loops, inner, split))
      return fail("a reshape does not come apart");
    return demand(n.operands[0], inner, guards);
  }
  case NodeKind::Pad:
    return pad(n, index, guards);
  case NodeKind::Concat:
    return concat(n, index, guards);
  case NodeKind::Reduce:
    return reduce(n, index, guards);
  default:
    return elementwise(n, index, guards);
  }
}

int Planner::load(int node, const Index &index, const Conditions &guards) {
  const Node &n = graph.nodes[node];
  LoopValue v;
  v.type = n.type;
  if (n.kind == NodeKind::Constant && n.table.empty()) {
    v.kind = ValueKind::Constant;
    v.constant = n.value;
    return intern(v);
  }
  if (n.kind == NodeKind::Input && n.scalar) {
    v.kind = ValueKind::Scalar;
    v.buffer = scalarOf[node];
    return intern(v);
  }
  v.kind = ValueKind::Load;
  v.expr = linearize(index, n.shape);
  if (n.kind == NodeKind::Constant) {
    v.buffer = -1 - static_cast<int>(p.tables.size());
    p.tables.push_back(n.table);
    p.tableTypes.push_back(n.type);
  } else {
    v.buffer = bufferOf[node];
  }
  for (size_t i = 0; i < index.size(); ++i) {
    auto [low, high] = rangeOf(index[i], p.loops);
    if (low < 0 || high >= n.shape[i])
      v.conditions = guards; // otherwise the element exists even if it is not needed
  }
  return intern(v);
}

int Planner::iota(const Node &n, const Index &index, const Conditions &guards) {
  LoopValue v;
  v.kind = ValueKind::Index;
  v.type = DType::I32;
  v.expr = index[n.dim];
  int value = intern(v);
  auto op = [&](NodeKind kind, DType type, std::vector<int> operands) {
    LoopValue o;
    o.kind = ValueKind::Op;
    o.op = kind;
    o.type = type;
    o.operands = std::move(operands);
    return intern(o);
  };
  if (n.type != DType::I32)
    value = op(NodeKind::Cast, n.type, {value});
  if (n.operands.empty())
    return value;
  const Node &offset = graph.nodes[n.operands[0]];
  int start = demand(n.operands[0], Index(offset.shape.size()), guards);
  if (start < 0)
    return -1;
  if (offset.type != n.type)
    start = op(NodeKind::Cast, n.type, {start});
  return op(NodeKind::Add, n.type, {value, start});
}

bool Planner::alwaysTrue(const Condition &c) const {
  auto [low, high] = rangeOf(c.expr, p.loops);
  return low >= c.low && high < c.high;
}

int Planner::guarded(const Conditions &conditions, int inside, int outside, DType type) {
  if (inside < 0 || outside < 0)
    return -1;
  if (conditions.empty())
    return inside;
  LoopValue v;
  v.kind = ValueKind::Guarded;
  v.type = type;
  v.operands = {inside, outside};
  v.conditions = conditions;
  return intern(v);
}

int Planner::pad(const Node &n, const Index &index, const Conditions &guards) {
  const std::vector<int64_t> &shape = graph.nodes[n.operands[0]].shape;
  Conditions own, all = guards;
  Index inner = index;
  for (size_t i = 0; i < index.size(); ++i) {
    inner[i].constant -= n.dims[i];
    Condition c{inner[i], 0, shape[i]};
    if (!alwaysTrue(c))
      own.push_back(c);
  }
  all.insert(all.end(), own.begin(), own.end());
  LoopValue zero;
  zero.type = n.type;
  int inside = demand(n.operands[0], inner, all);
  return guarded(own, inside, intern(zero), n.type);
}

int Planner::concat(const Node &n, const Index &index, const Conditions &guards) {
  auto [low, high] = rangeOf(index[n.dim], p.loops);
  std::vector<std::pair<int, int64_t>> parts; // operand, its first position
  int64_t begin = 0;
  for (int operand : n.operands) {
    int64_t size = graph.nodes[operand].shape[n.dim];
    if (begin <= high && begin + size > low)
      parts.push_back({operand, begin});
    begin += size;
  }
  int result = -1;
  for (size_t k = parts.size(); k-- > 0;) {
    auto [operand, start] = parts[k];
    Condition c{index[n.dim], start, start + graph.nodes[operand].shape[n.dim]};
    Conditions all = guards, own;
    if (!alwaysTrue(c))
      own.push_back(c);
    all.insert(all.end(), own.begin(), own.end());
    Index inner = index;
    inner[n.dim].constant -= start;
    int value = demand(operand, inner, all);
    result = k + 1 == parts.size() ? value : guarded(own, value, result, n.type);
    if (result < 0)
      return -1;
  }
  return result;
}

int Planner::reduce(const Node &n, const Index &index, const Conditions &guards) {
  const Node &input = graph.nodes[n.operands[0]];
  Index inner(input.shape.size());
  std::vector<bool> gone(input.shape.size(), false);
  std::vector<int64_t> reducedShape;
  for (int64_t d : n.dims) {
    gone[d] = true;
    reducedShape.push_back(input.shape[d]);
  }
  size_t next = 0;
  for (size_t i = 0; i < inner.size(); ++i)
    if (!gone[i])
      inner[i] = index[next++];
  if (elementCount(reducedShape) == 1)
    return demand(n.operands[0], inner, guards);
  if (n.type == DType::I1)
    return fail("a reduction of i1");
  uint32_t used = 0;
  for (const Expr &e : index)
    used |= loopsOf(e);
  if (used != keptMask)
    return fail("a reduction over other dimensions");
  int64_t reducedCount = 1;
  for (const Loop &l : p.loops)
    reducedCount *= l.reduced ? l.extent : 1;
  if (elementCount(reducedShape) != reducedCount)
    return fail("reductions of different lengths");
  Index taken;
  if (!delinearize(reduced, reducedShape, p.loops, taken, split))
    return fail("reductions whose dimensions do not match");
  for (size_t k = 0; k < n.dims.size(); ++k)
    inner[n.dims[k]] = taken[k];
  // Guards of the sum's user over reduced loops do not apply to the terms, because the sum iterates over those loops
  // itself.
  Conditions ofRow;
  for (const Condition &guard : guards) {
    if (uint32_t loops = loopsOf(guard.expr); (loops & ~keptMask) == 0)
      ofRow.push_back(guard);
    else if (loops & keptMask)
      return fail("a reduction under a condition on both kept and reduced loops");
  }
  LoopValue v;
  v.kind = ValueKind::Reduce;
  v.type = n.type;
  v.combine = n.combine;
  int operand = demand(n.operands[0], inner, ofRow);
  if (operand < 0)
    return -1;
  v.operands = {operand};
  return intern(v);
}

int Planner::elementwise(const Node &n, const Index &index, const Conditions &guards) {
  LoopValue v;
  v.kind = ValueKind::Op;
  v.op = n.kind;
  v.type = n.type;
  v.relation = n.relation;
  v.tanh = n.tanh;
  for (int operand : n.operands) {
    int value = demand(operand, index, guards);
    if (value < 0)
      return -1;
    v.operands.push_back(value);
  }
  return intern(v);
}

} // namespace cleave::passes::kernel
