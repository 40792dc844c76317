// What the users of loops for several processors share (WinogradKernels.h, AttentionKernels.h).
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

} // namespace cleave
