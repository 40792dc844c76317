// A strided copy with as few loops as possible.
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

/// Drops dimensions of size 1 and merges adjacent dimensions that are contiguous on both sides.
std::vector<CopyDim> copyDims(const plan::Copy &copy);

} // namespace cleave
