// What the users of loops for several processors share (WinogradKernels.h, DepthwiseKernels.h, AttentionKernels.h,
// GemmKernels.h).
#pragma once
#include "runtime/base/Target.h"
#include "runtime/plan/plan_generated.h"

#include <cstdint>
#include <optional>
#include <string>

namespace cleave {

constexpr int64_t lineFloats = 16; // of a cache line

inline int64_t roundUp(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

/// The loops for the processors that the plan is for; null if these have no AVX2.
template <typename Kernels>
const Kernels *loopsFor(const plan::Plan &plan, const Kernels &avx2, const Kernels &avx512) {
  const std::optional<Target> target = Target::named(plan.target() ? plan.target()->str() : "");
  return target == Target::X86_64_v4 ? &avx512 : target == Target::X86_64_v3 ? &avx2 : nullptr;
}

/// The same for operands of which all are bf16 (`half`) or not: with products of bf16 pairs where the processor has
/// them.
template <typename Kernels>
const Kernels *loopsFor(const plan::Plan &plan, bool half, const Kernels &avx2, const Kernels &avx512,
                        const Kernels &pairs) {
  const Kernels *found = loopsFor(plan, avx2, avx512);
  return found == &avx512 && half && __builtin_cpu_supports("avx512bf16") ? &pairs : found;
}

/// Parts of a matrix among threads: `down` x `across`.
struct Grid {
  int64_t down = 1, across = 1;
};

/// The grid of at most `threads` parts with the least cost(down, across); the first of equal ones.
template <typename Cost> Grid gridOf(int64_t threads, Cost cost) {
  Grid best{1, threads};
  auto least = cost(best.down, best.across);
  for (int64_t down = 2; down <= threads; ++down)
    if (const auto next = cost(down, threads / down); next < least)
      least = next, best = {down, threads / down};
  return best;
}

} // namespace cleave
