// Chooses among several ways to compute a step, by measuring them once.
#include "runtime/base/Error.h"
#include "runtime/device/CpuDevice.h"
#include "runtime/device/OneDnn.h"
#include "runtime/device/Tuning.h"
#include "runtime/plan/plan_generated.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cpuid.h>
#include <cstring>
#include <immintrin.h>
#include <limits>
#include <span>
#include <sys/mman.h>

namespace cleave {

namespace {

/// Less work is not measured: some hundredths of a millisecond on one core.
constexpr double leastOperations = 1e6;
/// The first method is kept unless another takes less than this part of its time.
constexpr double clearly = 0.97;
constexpr int timedRuns = 3;
/// Larger operands are not in a core's cache when their step begins: other steps have run since they were used.
constexpr size_t largeBytes = 1 << 20;
constexpr int smallNumbers = 0x3c; // as the bytes of any type

std::string processorName() {
  unsigned words[12] = {};
  for (size_t i = 0; i < 3; ++i)
    if (!__get_cpuid(0x80000002 + static_cast<unsigned>(i), &words[4 * i], &words[4 * i + 1], &words[4 * i + 2],
                     &words[4 * i + 3]))
      return "unknown";
  char name[sizeof words + 1] = {};
  std::memcpy(name, words, sizeof words);
  return name;
}

/// Takes memory out of the caches, as other steps do between two runs of one step.
void evict(std::span<const std::byte> memory) {
  constexpr size_t line = 64;
  for (size_t i = 0; i < memory.size(); i += line)
    _mm_clflush(memory.data() + i);
  _mm_mfence();
}

/// Seconds of a run, with the small operands in the cache, the `large` ones in memory. `known`: of another method; 0:
/// none. One that takes far longer is not measured twice.
double secondsOf(Op &op, SlotTable slots, const std::vector<std::span<const std::byte>> &large, double known) {
  using Clock = std::chrono::steady_clock;
  const RunContext same{{}, 0, std::numeric_limits<uint64_t>::max()}; // what is packed once an iteration stays packed
  op.run(slots, same);
  double least = std::numeric_limits<double>::max();
  for (int i = 0; i < timedRuns && (i == 0 || known == 0 || least < 1.3 * known); ++i) {
    std::for_each(large.begin(), large.end(), evict);
    const auto begin = Clock::now();
    op.run(slots, same);
    least = std::min(least, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return least;
}

/// The fastest method that exists.
const Method &measured(const std::vector<Method> &methods, const std::vector<uint32_t> &slots, SlotScope &scope,
                       OneDnnContext &context) {
  constexpr size_t page = 4096;
  const auto pages = [](size_t bytes) { return (bytes + page - 1) / page * page; };
  size_t operands = 0;
  for (const uint32_t slot : slots)
    operands += pages(scope.slot(slot).bytes());
  std::memset(context.measuring.atLeast(operands), smallNumbers, operands);
  std::vector<std::byte *> table;
  const Method *best = nullptr;
  double least = 0;
  for (const Method &method : methods) {
    context.workspace = {};
    const auto op = method.make();
    if (!op)
      continue;
    std::byte *at = context.measuring.atLeast(operands + context.workspace.need);
    context.workspace.memory = at + operands;
    std::vector<std::span<const std::byte>> large;
    for (const uint32_t slot : slots) {
      const uint32_t local = scope.local(slot);
      table.resize(std::max<size_t>(table.size(), local + 1));
      table[local] = at;
      const size_t bytes = scope.slot(slot).bytes();
      if (bytes >= largeBytes)
        large.emplace_back(at, bytes);
      at += pages(bytes);
    }
    const double seconds = secondsOf(*op, table.data(), large, best ? least : 0);
    if (!best || seconds < clearly * least)
      best = &method, least = seconds;
  }
  if (!best)
    throw environmentError("cpu: no method for a step");
  return *best;
}

} // namespace

std::byte *MeasuringMemory::atLeast(size_t needed) {
  if (needed <= bytes)
    return static_cast<std::byte *>(start);
  void *grown = bytes ? ::mremap(start, bytes, needed, MREMAP_MAYMOVE)
                      : ::mmap(nullptr, needed, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (grown == MAP_FAILED)
    throw environmentError("cpu: not enough memory to measure a step");
  start = grown;
  auto *first = static_cast<std::byte *>(start);
  std::memset(first + bytes, smallNumbers, needed - bytes); // memory that nobody wrote is one page, always in the cache
  bytes = needed;
  return first;
}

void MeasuringMemory::release() {
  if (bytes)
    ::munmap(start, bytes);
  bytes = 0;
}

std::unique_ptr<Op> makeFastest(const std::vector<Method> &methods, const std::string &step, double operations,
                                const std::vector<uint32_t> &slots, SlotScope &scope, OneDnnContext &context) {
  const Workspace before = context.workspace;
  const auto make = [&](const Method &method) {
    context.workspace = before;
    return method.make();
  };
  if (methods.size() > 1 && operations >= leastOperations && context.tuning) {
    static const std::string processor = processorName();
    std::string names;
    for (const Method &method : methods)
      names += " " + method.name;
    const std::string key = fmt::format(
        "{} | onednn {} isa {:#x} | {} threads, large operands in memory |{} | {}", processor, cpuLibraryVersion(),
        static_cast<unsigned>(dnnl::get_effective_cpu_isa()), context.threads, names, step);
    const std::string known = context.tuning->find(key);
    for (const Method &method : methods)
      if (method.name == known)
        if (auto op = make(method))
          return op;
    if (context.tuning->measures()) {
      const Method &best = measured(methods, slots, scope, context);
      context.tuning->put(key, best.name);
      return make(best);
    }
  }
  for (const Method &method : methods)
    if (auto op = make(method))
      return op;
  throw environmentError("cpu: no method for a step");
}

} // namespace cleave
