// The cost model of kernels: bytes moved, cycles, available parallelism, and launch overhead.
#include "passes/codegen/nest/Cost.h"
#include "passes/codegen/nest/Affine.h"
#include "passes/codegen/nest/GpuNumbers.h"

#include <algorithm>
#include <set>

namespace cleave::passes::kernel {

static double unroundedCycles(const LoopValue &v) {
  if (v.kind != ValueKind::Op)
    return v.kind == ValueKind::Constant || v.kind == ValueKind::Scalar ? 0 : 1;
  return cyclesOf(v.op);
}

double operationCycles(const LoopValue &v) { return unroundedCycles(v) + (needsRounding(v) ? 3 : 0); }

namespace {

constexpr double launchMicroseconds = 2, bytesPerMicrosecond = 6000, cyclesPerMicrosecond = 2500;
constexpr int64_t threads = 4, cachedBytes = 512 * 1024;

double iterations(const LoopNest &p, uint32_t loops) {
  double count = 1;
  for (size_t l = 0; l < p.loops.size(); ++l)
    count *= loops >> l & 1 ? static_cast<double>(p.loops[l].extent) : 1;
  return count;
}

/// How often each value is computed, in vectors or scalars.
double evaluations(const LoopNest &p, size_t i) {
  uint32_t loops = p.placements[i].loops;
  double count = iterations(p, loops);
  if (p.vectorLoop >= 0 && loops >> p.vectorLoop & 1) {
    double extent = static_cast<double>(p.loops[p.vectorLoop].extent);
    count = count / extent * ((p.loops[p.vectorLoop].extent + p.width - 1) / p.width);
  }
  return count;
}

bool gathers(const LoopNest &p, const Expr &e) {
  return p.vectorLoop >= 0 && e.coef[p.vectorLoop] != 0 && e.coef[p.vectorLoop] != 1;
}

/// For each value, the sweeps that compute it; -1: computed once per row, outside the sweeps.
std::vector<std::set<int>> sweepsOfValues(const LoopNest &p) {
  uint32_t reduced = 0;
  for (size_t l = 0; l < p.loops.size(); ++l)
    reduced |= p.loops[l].reduced ? 1u << l : 0;
  std::vector<std::set<int>> sweepsOf(p.values.size());
  auto visit = [&](auto &self, int v, int s) -> void {
    const Placement &at = p.placements[v];
    if (!(at.loops & reduced) && p.shape != Shape::Map)
      s = -1;
    if (at.scratch >= 0 && s > at.scratchFrom)
      return;
    if (!sweepsOf[v].insert(s).second)
      return;
    if (p.values[v].kind != ValueKind::Reduce)
      for (int o : p.values[v].operands)
        self(self, o, s);
    else
      self(self, p.values[v].operands[0], at.sweep - 1);
  };
  for (const Store &s : p.stores)
    visit(visit, s.value, s.sweep);
  return sweepsOf;
}

/// For a large GPU: limited by memory bandwidth, unless there are too few threads to saturate it.
double gpuCost(const LoopNest &p) {
  constexpr double bytesPerMicrosecond = 2.8e6, cyclesPerMicrosecond = 2.8e7, sector = sectorBytes;
  constexpr int64_t enoughThreads = multiprocessors * residentThreads / 4, mostBuffers = 32;
  const std::vector<std::set<int>> sweepsOf = sweepsOfValues(p);
  double cycles = 0, bytes = 0;
  std::vector<double> read(p.buffers.size(), 0);
  for (size_t i = 0; i < p.values.size(); ++i) {
    const LoopValue &v = p.values[i];
    const double times = p.threads.held ? std::min<double>(1, static_cast<double>(sweepsOf[i].size()))
                                        : static_cast<double>(sweepsOf[i].size());
    bool shared = p.shape != Shape::Map; // every thread of the group computes it
    for (size_t l = 0; l < p.loops.size(); ++l)
      shared &= !(p.loops[l].reduced && p.placements[i].loops >> l & 1);
    cycles += iterations(p, p.placements[i].loops) * times * operationCycles(v) * (shared ? p.threads.group : 1);
    if (v.kind == ValueKind::Load && v.buffer >= 0 && times > 0) {
      const auto size = static_cast<double>(dtypeSize(v.type));
      // repeated reads hit the L2 cache
      read[v.buffer] = std::max(read[v.buffer], iterations(p, loopsOf(v.expr)) *
                                                    (gathers(p, v.expr) ? sector / 2 : size) * (1 + 0.4 * (times - 1)));
    }
  }
  for (int b = 0; b < p.inputs; ++b)
    bytes += read[b];
  for (const Store &s : p.stores)
    bytes += static_cast<double>(p.bufferSizes[s.buffer]) *
             (gathers(p, s.expr) ? sector : static_cast<double>(dtypeSize(p.buffers[s.buffer])));
  const int64_t items =
      p.shape == Shape::Rows ? p.extent * p.threads.group : p.extent / p.threads.chunk * p.threads.group;
  const double busy = std::clamp(static_cast<double>(items) / static_cast<double>(enoughThreads), 0.004, 1.0);
  // Buffers whose pointers do not fit into registers.
  const int64_t spilled = std::max<int64_t>(0, static_cast<int64_t>(p.buffers.size()) - mostBuffers);
  return launchMicroseconds * static_cast<double>(1 + 2 * spilled) +
         std::max(bytes / bytesPerMicrosecond, cycles / cyclesPerMicrosecond) / busy;
}

} // namespace

double cost(const LoopNest &p) {
  if (p.width == 1)
    return gpuCost(p);
  bool rowCached = p.reducedCount() * 4 * (p.shape == Shape::Columns ? p.vectorBlock() : 1) <= cachedBytes;
  const std::vector<std::set<int>> sweepsOf = sweepsOfValues(p);
  double cycles = 0, bytes = 0;
  std::vector<double> read(p.buffers.size(), 0);
  for (size_t i = 0; i < p.values.size(); ++i) {
    const LoopValue &v = p.values[i];
    double times = static_cast<double>(sweepsOf[i].size());
    bool isGather = v.kind == ValueKind::Load && gathers(p, v.expr);
    cycles += evaluations(p, i) * times * (operationCycles(v) + (isGather ? 24 : 0));
    if (v.kind == ValueKind::Load && v.buffer >= 0 && times > 0)
      read[v.buffer] += iterations(p, loopsOf(v.expr)) * static_cast<double>(dtypeSize(v.type)) *
                        (rowCached ? 1 : times) * (isGather ? 1.5 : 1);
  }
  for (int b = 0; b < p.inputs; ++b)
    bytes += read[b];
  for (const Store &s : p.stores) {
    bool scatters = gathers(p, s.expr);
    bytes += static_cast<double>(p.bufferSizes[s.buffer] * dtypeSize(p.buffers[s.buffer])) *
             (scatters ? 3 : 1.5); // partial writes read the line first
    cycles += scatters ? static_cast<double>(p.bufferSizes[s.buffer]) * 3 : 0;
  }
  int64_t pieces = (p.extent + p.grain - 1) / p.grain;
  double parallel = static_cast<double>(std::min(threads, std::max<int64_t>(pieces, 1)));
  return launchMicroseconds + (bytes / bytesPerMicrosecond + cycles / cyclesPerMicrosecond) / parallel;
}

} // namespace cleave::passes::kernel
