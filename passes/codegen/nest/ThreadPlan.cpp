// How GPU threads divide a loop nest: elements per access, chunks in flight, threads per row.
//
// These kernels are limited by memory bandwidth. A thread reads 16 bytes at once if aligned, and has 32 bytes or more
// in flight before it computes; a row that fits stays in registers for all sweeps. Every buffer is aligned to 16 bytes
// (the plan's checker verifies this), so the alignment of an access follows from its strides.
#include "passes/codegen/nest/Affine.h"
#include "passes/codegen/nest/GpuNumbers.h"
#include "passes/codegen/nest/LoopNest.h"

#include <algorithm>
#include <bit>
#include <optional>

namespace cleave::passes::kernel {

namespace {

// Thresholds of the heuristics below, which no specification gives.
constexpr int flightBytes = 32;       // that a thread of a map has in flight
constexpr int mostRegisters = 64;     // of a thread, for the elements of all its loads
constexpr int mostHeld = 32;          // elements of a row that a thread holds
constexpr int mostHeldRegisters = 96; // of a thread, for the elements of all loads of a row that it holds
constexpr int64_t busyThreads = multiprocessors * residentThreads / 2; // that occupy the GPU fully
constexpr int64_t fewBlocks = 32;                                      // fewer are divided further
constexpr int64_t mostShared = staticSharedBytes - (8 << 10);          // for the parts of columns

int64_t extentOf(const LoopNest &p) { return p.vectorLoop < 0 ? 1 : p.loops[p.vectorLoop].extent; }

/// Whether the elements at `e` along the vector loop are neighbours in memory.
bool adjacent(const LoopNest &p, const Expr &e) { return p.vectorLoop >= 0 && e.coef[p.vectorLoop] == 1; }

/// Memory traffic of a loop nest along its vector loop.
struct Traffic {
  int smallest = 4;  // bytes of the smallest adjacent element, at least 2: for bytes, chunks of eight are enough
  int loadBytes = 0; // bytes read for one element
  int loads = 0;     // loads that depend on the innermost loops
  int streams = 0;   // loads among these that read (nearly) as many elements as are computed
  int reductions = 0;
};

/// Number of distinct elements that an address takes.
int64_t elementsOf(const LoopNest &p, const Expr &e) {
  int64_t count = 1;
  for (size_t l = 0; l < p.loops.size(); ++l)
    count *= loopsOf(e) >> l & 1 ? p.loops[l].extent : 1;
  return count;
}

Traffic trafficOf(const LoopNest &p) {
  Traffic t;
  const uint32_t inner = p.shape == Shape::Map ? ~0u : p.reducedMask();
  std::optional<int> smallest;
  const auto see = [&](const Expr &e, DType type) {
    const int bytes = static_cast<int>(dtypeSize(type));
    if (adjacent(p, e))
      smallest = std::min(smallest.value_or(bytes), bytes);
  };
  for (const LoopValue &v : p.values) {
    t.reductions += v.kind == ValueKind::Reduce;
    if (v.kind == ValueKind::Load && v.buffer >= 0 && (loopsOf(v.expr) & inner)) {
      ++t.loads;
      const bool stream = elementsOf(p, v.expr) * 8 >= p.keptCount() * p.reducedCount();
      t.streams += stream;
      see(v.expr, v.type);
      if (stream && adjacent(p, v.expr))
        t.loadBytes += static_cast<int>(dtypeSize(v.type));
    }
  }
  for (const Store &s : p.stores)
    if (s.sweep >= 0) // skips the few results of rows and columns
      see(s.expr, p.buffers[s.buffer]);
  t.smallest = std::max(smallest.value_or(t.smallest), 2);
  return t;
}

/// The largest chunk up to `wanted` that divides the vector loop.
int chunkOf(const LoopNest &p, int wanted) {
  while (wanted > 1 && extentOf(p) % wanted)
    wanted /= 2;
  return wanted;
}

/// The largest power of two up to `x` and `most`, both at least 1.
int powerAtMost(int64_t x, int most) {
  return static_cast<int>(std::bit_floor(static_cast<uint64_t>(std::min<int64_t>(x, most))));
}

void planMap(LoopNest &p) {
  ThreadPlan &t = p.threads;
  const Traffic traffic = trafficOf(p);
  int wanted = accessBytes / traffic.smallest;
  if (traffic.streams > 3 || wanted * traffic.loads > mostRegisters)
    wanted = std::min(wanted, 4);
  t.chunk = p.flat ? wanted : chunkOf(p, wanted);
  while (t.passes < 4 && traffic.streams && t.chunk * t.passes * traffic.loadBytes < flightBytes &&
         t.chunk * t.passes * 2 * traffic.loads <= mostRegisters)
    t.passes *= 2;
  if (!p.flat)
    while (t.passes > 1 && p.keptCount() / t.chunk / t.passes < busyThreads / 4)
      t.passes /= 2;
}

void planRows(LoopNest &p) {
  ThreadPlan &t = p.threads;
  const Traffic traffic = trafficOf(p);
  const int64_t length = p.reducedCount(), rows = p.keptCount();
  const int pointers = 2 * std::max(0, static_cast<int>(p.buffers.size()) - 10); // registers for buffers beyond ten
  t.chunk = chunkOf(p, accessBytes / traffic.smallest);
  while (t.chunk > 1 &&
         (length / t.chunk < warp || t.chunk * (traffic.loads + traffic.reductions) + pointers > mostRegisters))
    t.chunk /= 2;
  const int64_t chunks = length / t.chunk;
  auto passes = [&](int threads) { return (chunks + threads - 1) / threads; };
  auto fits = [&](int threads) {
    const int64_t elements = passes(threads) * t.chunk;
    const int most = threads < 512 ? mostHeldRegisters : mostHeldRegisters / 2; // 512 have 128 registers each
    return elements <= mostHeld && elements * std::max(traffic.loads, 1) + pointers <= most;
  };
  t.group = warp;
  const int widest = pointers ? 256 : 512; // wider blocks have too few registers for many buffers
  while (t.group < widest && (!fits(t.group) || (rows * t.group < busyThreads && passes(t.group) > 2)))
    t.group *= 2;
  t.held = fits(t.group);
  t.block = t.group > warp ? t.group : 128;
  if (t.held)
    t.passes = static_cast<int>(passes(t.group));
  else
    while (t.passes * t.chunk < 16 && t.passes * 2 * t.chunk * traffic.loads + pointers <= mostRegisters)
      t.passes *= 2;
}

/// Bytes of shared memory in which the threads of a column combine their parts.
int64_t columnBytes(const LoopNest &p) {
  int64_t bytes = 0;
  for (const LoopValue &v : p.values)
    if (v.kind == ValueKind::Reduce)
      bytes += int64_t{p.threads.block} * p.threads.chunk * (v.type == DType::I64 ? 8 : 4);
  return bytes;
}

void planColumns(LoopNest &p) {
  ThreadPlan &t = p.threads;
  const Traffic traffic = trafficOf(p);
  const int64_t length = p.reducedCount();
  t.chunk = chunkOf(p, accessBytes / traffic.smallest);
  while (t.chunk > 1 && t.chunk * (traffic.loads + traffic.reductions) > mostRegisters)
    t.chunk /= 2;
  const int64_t items = p.keptCount() / t.chunk;
  int across = powerAtMost(2 * items - 1, warp); // adjacent chunks in a block
  while (across * t.chunk * traffic.smallest > sectorBytes && items / across < fewBlocks)
    across /= 2;
  t.group = powerAtMost(std::max<int64_t>(length / 2, 1), 256 / across);
  if (items / across < multiprocessors && length / t.group >= 16)
    t.group *= 2;
  if (t.group == 1)
    across = powerAtMost(2 * items - 1, 128);
  t.group = std::max(t.group, warp / across); // whole warps, even if some threads idle
  t.block = across * t.group;
  while (t.group > 1 && t.block > warp && columnBytes(p) > mostShared)
    t.group /= 2, t.block /= 2;
  const auto stores = std::count_if(p.stores.begin(), p.stores.end(), [](const Store &s) { return s.sweep >= 0; });
  const int streams = std::max(traffic.loads, 1) + static_cast<int>(stores);
  while (t.passes < 8 && t.passes <= length / t.group / 2 && t.passes * 2 * t.chunk * streams <= mostRegisters)
    t.passes *= 2;
}

} // namespace

int accessWidth(const LoopNest &p, const Expr &expr, DType type, const std::vector<Condition> &conditions) {
  if (!adjacent(p, expr))
    return 1;
  int64_t width = std::min<int64_t>(p.threads.chunk, accessBytes / dtypeSize(type));
  auto aligned = [&](const Expr &e, int64_t constant) {
    bool multiple = constant % width == 0;
    for (size_t l = 0; l < p.loops.size(); ++l)
      multiple &= static_cast<int>(l) == p.vectorLoop || e.coef[l] % width == 0;
    return multiple;
  };
  auto whole = [&](const Condition &c) {
    const int64_t step = c.expr.coef[p.vectorLoop];
    return step == 0 || (step == 1 && aligned(c.expr, c.expr.constant - c.low) && (c.high - c.low) % width == 0);
  };
  while (width > 1 && !(aligned(expr, expr.constant) && std::all_of(conditions.begin(), conditions.end(), whole)))
    width /= 2;
  return width * dtypeSize(type) < 4 ? 1 : static_cast<int>(width);
}

void planThreads(LoopNest &p) {
  p.threads = {};
  if (p.shape == Shape::Map)
    planMap(p);
  else if (p.shape == Shape::Rows)
    planRows(p);
  else
    planColumns(p);
  p.unroll = p.threads.chunk * p.threads.passes;
  p.extent = p.keptCount();
  p.grain = 1;
}

} // namespace cleave::passes::kernel
