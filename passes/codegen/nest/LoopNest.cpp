// From values to a schedule: loops are merged if every address allows it, one becomes the vector loop, values are
// assigned to sweeps, and expensive values needed again are stored in scratch memory.
#include "ir/graph/Enums.h"
#include "passes/codegen/nest/Affine.h"
#include "passes/codegen/nest/Cost.h"
#include "passes/codegen/nest/Planner.h"

#include <algorithm>

namespace cleave::passes::kernel {

namespace {

template <typename Fn> void forEachExpr(LoopNest &p, Fn fn) {
  for (LoopValue &v : p.values) {
    if (v.kind == ValueKind::Load || v.kind == ValueKind::Index)
      fn(v.expr);
    for (Condition &c : v.conditions)
      fn(c.expr);
  }
  for (Store &s : p.stores)
    fn(s.expr);
}

/// Lets the call add the constant part of an input's addresses, so that kernels that differ only in where they begin to
/// read, such as those of an unrolled loop, are equal. GPU threads read several elements at once, at aligned addresses.
void moveInputs(LoopNest &p) {
  constexpr int64_t aligned = 16; // bytes
  p.offsets.assign(static_cast<size_t>(p.inputs), 0);
  for (int b = 0; b < p.inputs; ++b) {
    int64_t first = p.bufferSizes[b], last = -1;
    for (const LoopValue &v : p.values) {
      if (v.kind != ValueKind::Load || v.buffer != b)
        continue;
      int64_t farthest = v.expr.constant;
      for (size_t l = 0; l < p.loops.size(); ++l) {
        farthest += v.expr.coef[l] * (p.loops[l].extent - 1);
        if (v.expr.coef[l] < 0)
          first = 0;
      }
      first = std::min(first, v.expr.constant), last = std::max(last, farthest);
    }
    if (p.width == 1)
      first -= first % std::max<int64_t>(1, aligned / dtypeSize(p.buffers[b]));
    if (first <= 0 || last < 0)
      continue;
    p.offsets[b] = first;
    p.bufferSizes[b] = std::min(p.bufferSizes[b], last + 1) - first;
    for (LoopValue &v : p.values)
      if (v.kind == ValueKind::Load && v.buffer == b)
        v.expr.constant -= first;
  }
}

/// Merges loop `outer` into `inner` if every expression allows it.
bool joinLoops(LoopNest &p, int outer, int inner) {
  if (p.loops[outer].reduced != p.loops[inner].reduced)
    return false;
  bool joinable = true;
  forEachExpr(p, [&](Expr &e) { joinable &= e.coef[outer] == e.coef[inner] * p.loops[inner].extent; });
  if (!joinable)
    return false;
  p.loops[inner].extent *= p.loops[outer].extent;
  p.loops.erase(p.loops.begin() + outer);
  forEachExpr(p, [&](Expr &e) {
    std::copy(e.coef.begin() + outer + 1, e.coef.end(), e.coef.begin() + outer);
    e.coef[maxLoops - 1] = 0;
  });
  return true;
}

void joinAllLoops(LoopNest &p) {
  for (bool changed = true; changed;) {
    changed = false;
    for (int a = 0; a < static_cast<int>(p.loops.size()) && !changed; ++a)
      for (int b = 0; b < static_cast<int>(p.loops.size()) && !changed; ++b)
        changed = a != b && joinLoops(p, a, b);
  }
}

/// Chooses the loop with the most contiguous memory accesses, by the share of lanes in use; stores count one and a half
/// times.
void chooseVectorLoop(LoopNest &p) {
  std::vector<double> votes(p.loops.size(), 0);
  auto vote = [&](const Expr &e, double weight) {
    for (size_t l = 0; l < p.loops.size(); ++l)
      weight *= e.coef[l] ? static_cast<double>(p.loops[l].extent) : 1;
    for (size_t l = 0; l < p.loops.size(); ++l) {
      const int64_t extent = p.loops[l].extent, lanes = (extent + p.width - 1) / p.width * p.width;
      votes[l] += e.coef[l] == 1 ? weight * static_cast<double>(extent) / static_cast<double>(lanes) : 0;
    }
  };
  for (const LoopValue &v : p.values)
    if (v.kind == ValueKind::Load)
      vote(v.expr, 1);
  for (const Store &s : p.stores)
    vote(s.expr, 1.5);
  p.vectorLoop = -1;
  double best = 0;
  for (size_t l = p.loops.size(); l-- > 0;)
    if (votes[l] > best) {
      best = votes[l];
      p.vectorLoop = static_cast<int>(l);
    }
  if (p.vectorLoop < 0 && !p.loops.empty()) { // nothing contiguous: the innermost reduced loop, or the innermost
    p.vectorLoop = static_cast<int>(p.loops.size()) - 1;
    for (size_t l = 0; l < p.loops.size(); ++l)
      if (p.loops[l].reduced)
        p.vectorLoop = static_cast<int>(l);
  }
}

/// Splits loop `l` into an outer loop, inserted before it, and an inner loop of `piece` iterations.
void cutLoop(LoopNest &p, int l, int64_t piece) {
  int64_t outer = p.loops[l].extent / piece;
  p.loops[l].extent = piece;
  p.loops.insert(p.loops.begin() + l, Loop{outer, p.loops[l].reduced});
  forEachExpr(p, [&](Expr &e) {
    std::copy_backward(e.coef.begin() + l, e.coef.end() - 1, e.coef.end());
    e.coef[l] = e.coef[l + 1] * piece;
  });
  if (p.vectorLoop >= l)
    ++p.vectorLoop;
}

/// Splits the few long rows of a map, to provide work for all threads.
void cutLongRows(LoopNest &p) {
  int v = p.vectorLoop;
  if (p.shape != Shape::Map || v < 0 || p.loops.size() < 2 || static_cast<int>(p.loops.size()) == maxLoops)
    return;
  int64_t rows = p.keptCount() / p.loops[v].extent, extent = p.loops[v].extent;
  if (rows >= 64 || extent < 8192)
    return;
  for (int64_t piece = 8192; piece >= 1024; piece -= 64) {
    if (extent % piece)
      continue;
    cutLoop(p, v, piece);
    return;
  }
}

/// Moves loop `from` to the last position.
void moveLast(LoopNest &p, int from) {
  std::rotate(p.loops.begin() + from, p.loops.begin() + from + 1, p.loops.end());
  auto count = static_cast<long>(p.loops.size());
  forEachExpr(p,
              [&](Expr &e) { std::rotate(e.coef.begin() + from, e.coef.begin() + from + 1, e.coef.begin() + count); });
  p.vectorLoop = p.vectorLoop == from ? static_cast<int>(count) - 1 : p.vectorLoop - (p.vectorLoop > from);
}

/// A transpose reads along another loop than it writes. Blocks both loops by up to 64, so that the cache lines read
/// stay in L1 until they are fully used.
void blockTransposes(LoopNest &p) {
  int other = -1, v = p.vectorLoop;
  if (p.shape != Shape::Map || v < 0 || static_cast<int>(p.loops.size()) + 2 > maxLoops)
    return;
  for (const LoopValue &value : p.values)
    if (value.kind == ValueKind::Load && value.expr.coef[v] > 1)
      for (int l = 0; l < static_cast<int>(p.loops.size()); ++l)
        if (value.expr.coef[l] == 1 && p.loops[l].extent >= 16)
          other = l;
  if (other < 0 || p.loops[v].extent < 64)
    return;
  auto pieceOf = [](int64_t extent) {
    for (int64_t piece = 64; piece >= 16; --piece)
      if (extent % piece == 0)
        return piece;
    return extent;
  };
  int64_t pieceV = pieceOf(p.loops[v].extent), pieceOther = pieceOf(p.loops[other].extent);
  cutLoop(p, v, pieceV);
  other += other > v;
  cutLoop(p, other, pieceOther); // the inner one is at other + 1
  moveLast(p, other + 1);
  moveLast(p, p.vectorLoop);
}

void placeValues(LoopNest &p) {
  uint32_t reduced = p.reducedMask();
  p.placements.assign(p.values.size(), {});
  for (size_t i = 0; i < p.values.size(); ++i) {
    const LoopValue &v = p.values[i];
    Placement &at = p.placements[i];
    if (v.kind == ValueKind::Load || v.kind == ValueKind::Index)
      at.loops = loopsOf(v.expr);
    for (const Condition &c : v.conditions)
      at.loops |= loopsOf(c.expr);
    for (int o : v.operands) {
      at.loops |= p.placements[o].loops;
      at.row |= p.placements[o].row;
      at.sweep = std::max(at.sweep, p.placements[o].sweep);
    }
    if (v.kind == ValueKind::Reduce) {
      at.loops &= ~reduced;
      at.row = true;
      ++at.sweep;
    }
    p.sweeps = std::max(p.sweeps, at.sweep);
  }
  for (Store &s : p.stores) {
    s.sweep = p.shape == Shape::Map ? 0 : (loopsOf(s.expr) & reduced) ? p.placements[s.value].sweep : -1;
    p.sweeps = std::max(p.sweeps, s.sweep + 1);
  }
}

/// Decides what each sweep computes and what it reads from scratch memory.
class ScratchPlan {
public:
  explicit ScratchPlan(LoopNest &p)
      : p(p), reduced(p.reducedMask()), first(p.values.size(), -1), work(p.values.size(), 0) {}

  void run() {
    int64_t lanes = p.shape == Shape::Columns ? p.vectorBlock() : 1;
    int64_t slotFloats = p.reducedCount() * lanes;
    slotsLeft = p.shape == Shape::Map || slotFloats > 16384 ? 0 : 32768 / slotFloats;
    for (size_t i = 0; i < p.values.size(); ++i) {
      work[i] = operationCycles(p.values[i]);
      for (int o : p.values[i].operands)
        if (full(o))
          work[i] += work[o];
    }
    for (int s = 0; s < p.sweeps; ++s) {
      for (size_t i = 0; i < p.values.size(); ++i)
        if (p.values[i].kind == ValueKind::Reduce && p.placements[i].sweep == s + 1)
          visit(p.values[i].operands[0], s);
      for (const Store &store : p.stores)
        if (store.sweep == s)
          visit(store.value, s);
    }
  }

private:
  bool full(int v) const { return p.placements[v].loops & reduced; }
  void visit(int v, int s) {
    if (!full(v) || first[v] == s)
      return;
    Placement &at = p.placements[v];
    if (first[v] >= 0 && work[v] >= 10 && isFloat(p.values[v].type) && p.values[v].kind == ValueKind::Op) {
      if (at.scratch < 0 && slotsLeft > 0) {
        at.scratch = p.scratchSlots++;
        at.scratchFrom = first[v];
        --slotsLeft;
      }
      if (at.scratch >= 0)
        return;
    }
    if (first[v] < 0)
      first[v] = s;
    for (int o : p.values[v].operands)
      if (p.values[v].kind != ValueKind::Reduce)
        visit(o, s);
  }

  LoopNest &p;
  uint32_t reduced;
  std::vector<int> first; // the first sweep that computes it
  std::vector<double> work;
  int64_t slotsLeft = 0;
};

/// In a map of many rows, values that are the same in every row, and cost more than a load, are computed once, before
/// the first row.
void hoistFromRows(LoopNest &p) {
  constexpr int64_t fewestRows = 16;
  constexpr double leastWork = 4;
  if (p.shape != Shape::Map || p.flat || p.vectorLoop < 0)
    return;
  const int64_t row = p.loops[p.vectorLoop].extent;
  if (p.keptCount() < fewestRows * row)
    return;
  int64_t slotsLeft = hoistedFloats / row;
  const auto same = [&](int v) { return p.placements[v].loops == 1u << p.vectorLoop; };
  std::vector<double> work(p.values.size(), 0);
  const auto visit = [&](int v) {
    Placement &at = p.placements[v];
    if (!same(v) || p.values[v].kind != ValueKind::Op || !isFloat(p.values[v].type) || work[v] < leastWork ||
        at.scratch >= 0 || slotsLeft <= 0)
      return;
    at.scratch = p.scratchSlots++;
    at.scratchFrom = -1;
    --slotsLeft;
  };
  for (size_t i = 0; i < p.values.size(); ++i) {
    work[i] = operationCycles(p.values[i]);
    for (int o : p.values[i].operands)
      work[i] += work[o];
    if (!same(static_cast<int>(i)))
      for (int o : p.values[i].operands)
        visit(o);
  }
  for (const Store &s : p.stores)
    visit(s.value);
}

void chooseUnroll(LoopNest &p) {
  p.unroll = 1;
  if (p.vectorLoop < 0)
    return;
  double work = 0;
  for (size_t i = 0; i < p.values.size(); ++i)
    if (p.placements[i].loops >> p.vectorLoop & 1)
      work += std::min(operationCycles(p.values[i]), 12.0);
  int64_t vectors = (p.loops[p.vectorLoop].extent + p.width - 1) / p.width;
  int most = work > 40 ? 1 : work > 16 ? 2 : 4;
  // Columns: every step of a reduced loop reads this many neighbours. Few blocks of columns are enough if there are
  // many other rows.
  constexpr int64_t manyRows = 16;
  if (p.shape == Shape::Columns)
    most = work > 40 ? 2 : work > 8 ? 4 : 8;
  const int64_t blocks = p.shape == Shape::Columns && p.keptCount() / p.loops[p.vectorLoop].extent >= manyRows ? 1 : 2;
  if (p.flat)
    p.unroll = most;
  else
    while (p.unroll * 2 <= most && p.unroll <= vectors / blocks / 2)
      p.unroll *= 2;
  if (p.shape != Shape::Columns || p.loops[p.vectorLoop].extent % p.width)
    return;
  // Blocks that divide the columns need no masks, which AVX2 does not have for elements of less than 4 bytes.
  int whole = 1;
  for (int u = 2; u <= most && u * blocks <= vectors; ++u)
    if (vectors % u == 0)
      whole = u;
  const bool slowMasks =
      p.width < 16 && std::any_of(p.buffers.begin(), p.buffers.end(), [](DType type) { return dtypeSize(type) < 4; });
  if (slowMasks || 2 * whole >= p.unroll)
    p.unroll = whole;
}

void chooseExtent(LoopNest &p) {
  int64_t vector = p.vectorLoop < 0 ? 1 : p.loops[p.vectorLoop].extent, perStep;
  if (p.flat) {
    p.extent = vector;
    p.grain = 4096;
    return;
  }
  int64_t rows = p.keptCount();
  if (p.shape == Shape::Columns) {
    int64_t block = p.vectorBlock();
    p.extent = rows / vector * ((vector + block - 1) / block);
    perStep = p.reducedCount() * block;
  } else {
    p.extent = p.shape == Shape::Map ? rows / vector : rows;
    perStep = p.shape == Shape::Map ? vector : p.reducedCount();
  }
  p.grain = std::max<int64_t>(1, 4096 / perStep);
}

} // namespace

bool needsRounding(const LoopValue &v) {
  if (v.type != DType::F16 && v.type != DType::BF16)
    return false;
  if (v.kind != ValueKind::Op)
    return v.kind == ValueKind::Scalar || (v.kind == ValueKind::Reduce && v.combine == ReduceKind::Sum);
  return !isExact(v.op);
}

uint32_t LoopNest::reducedMask() const {
  uint32_t mask = 0;
  for (size_t l = 0; l < loops.size(); ++l)
    mask |= loops[l].reduced ? 1u << l : 0;
  return mask;
}

int64_t LoopNest::reducedCount() const {
  int64_t count = 1;
  for (const Loop &l : loops)
    count *= l.reduced ? l.extent : 1;
  return count;
}

int64_t LoopNest::keptCount() const {
  int64_t count = 1;
  for (const Loop &l : loops)
    count *= l.reduced ? 1 : l.extent;
  return count;
}

std::optional<LoopNest> loopNestOf(const KernelGraph &graph, std::string *why, int width) {
  LoopNest p;
  Planner planner(graph);
  if (!planner.run(p)) {
    if (why)
      *why = planner.why;
    return std::nullopt;
  }
  p.width = width;
  moveInputs(p);
  joinAllLoops(p);
  chooseVectorLoop(p);
  bool reduces = p.reducedMask() != 0;
  p.shape = !reduces ? Shape::Map : p.loops[p.vectorLoop].reduced ? Shape::Rows : Shape::Columns;
  if (width > 1) {
    blockTransposes(p);
    cutLongRows(p);
  }
  p.flat = p.shape == Shape::Map && p.loops.size() == 1;
  placeValues(p);
  if (width > 1) {
    chooseUnroll(p);
    ScratchPlan(p).run();
    hoistFromRows(p);
    chooseExtent(p);
  } else {
    planThreads(p);
  }
  return p;
}

namespace {

/// The elements that a loop's addresses reach in each buffer; nullopt if conditions, tables or different addresses
/// decide.
std::optional<std::vector<LoopNest::Reach>> evenReaches(const LoopNest &p) {
  std::vector<std::optional<LoopNest::Reach>> found(p.buffers.size());
  bool even = p.flat;
  const auto visit = [&](int buffer, const Expr &e) {
    const int64_t step = e.coef[0];
    const LoopNest::Reach reach{e.constant + 1 - step, step};
    even = even && buffer >= 0 && step >= 0;
    if (!even)
      return;
    auto &mine = found[static_cast<size_t>(buffer)];
    even = !mine || *mine == reach;
    mine = reach;
  };
  for (const LoopValue &v : p.values) {
    even = even && v.conditions.empty();
    if (v.kind == ValueKind::Load)
      visit(v.buffer, v.expr);
  }
  for (const Store &s : p.stores)
    visit(s.buffer, s.expr);
  if (!even)
    return std::nullopt;
  std::vector<LoopNest::Reach> reaches;
  for (const auto &reach : found)
    reaches.push_back(reach.value_or(LoopNest::Reach{}));
  return reaches;
}

} // namespace

bool LoopNest::anyExtent() const { return evenReaches(*this).has_value(); }

std::vector<LoopNest::Reach> LoopNest::reaches() const {
  if (auto even = evenReaches(*this))
    return *even;
  std::vector<Reach> whole;
  for (int64_t size : bufferSizes)
    whole.push_back({size, 0});
  return whole;
}

std::vector<std::pair<int, int>> LoopNest::mayAlias() const {
  std::vector<std::pair<int, int>> pairs;
  uint32_t reduced = reducedMask();
  auto readsAfter = [&](int buffer, int sweep) { // can the buffer be read in a later sweep?
    std::vector<char> reads(values.size(), false);
    for (size_t v = 0; v < values.size(); ++v) {
      reads[v] = values[v].kind == ValueKind::Load && values[v].buffer == buffer;
      if (placements[v].loops & reduced)
        for (int o : values[v].operands)
          reads[v] |= reads[o];
    }
    for (size_t i = 0; i < values.size(); ++i)
      if (values[i].kind == ValueKind::Reduce && placements[i].sweep - 1 > sweep && reads[values[i].operands[0]])
        return true;
    return std::any_of(stores.begin(), stores.end(), [&](const Store &s) { return s.sweep > sweep && reads[s.value]; });
  };
  for (const Store &s : stores)
    for (int b = 0; b < inputs; ++b) {
      if (buffers[b] != buffers[s.buffer] || bufferSizes[b] != bufferSizes[s.buffer] || offsets[b] != 0)
        continue;
      bool read = false, same = true;
      for (const LoopValue &v : values)
        if (v.kind == ValueKind::Load && v.buffer == b) {
          read = true;
          same &= v.expr == s.expr && v.conditions.empty();
        }
      if (read && same && (s.sweep < 0 || !readsAfter(b, s.sweep)))
        pairs.push_back({s.buffer - inputs, b});
    }
  return pairs;
}

} // namespace cleave::passes::kernel
