// A strided copy as few loops.
#pragma once
#include "runtime/plan/PlanTypes.h"

#include <cstdint>
#include <vector>

namespace cleave::plan {
struct Copy;
}

namespace cleave {

struct CopyDim {
  int64_t size, src, dst; ///< strides in elements
};

/// Dimensions of one element dropped, neighbours joined that both sides walk as one.
std::vector<CopyDim> copyDims(const plan::Copy &copy);

} // namespace cleave
