// What layers with a weight and an optional bias share.
#pragma once
#include "cleave/Init.h"
#include "cleave/Module.h"

#include <cmath>
#include <optional>

namespace cleave {

/// U(-1/sqrt(fanIn), 1/sqrt(fanIn))
inline Init byFanIn(int64_t fanIn) {
  const double bound = 1 / std::sqrt(static_cast<double>(fanIn));
  return init::uniform(-bound, bound);
}

inline Tensor given(const std::optional<Parameter> &bias) { return bias ? bias->tensor(callSite()) : Tensor(); }

} // namespace cleave
