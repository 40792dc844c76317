// Display names of the parts of a plan.
#pragma once
#include "runtime/plan/plan_generated.h"

namespace cleave {

/// "all-reduce", "all-gather", ...
inline const char *collectiveName(plan::CollectiveKind kind) {
  static constexpr const char *names[] = {"all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast"};
  return names[static_cast<size_t>(kind)];
}

} // namespace cleave
