// Merges a copy's dimensions.
#include "runtime/device/CopyShape.h"

#include "runtime/plan/plan_generated.h"

namespace cleave {

std::vector<CopyDim> copyDims(const plan::Copy &copy) {
  std::vector<CopyDim> dims;
  size_t rank = copy.shape() ? copy.shape()->size() : 0;
  for (uint32_t d = 0; d < rank; ++d) {
    CopyDim dim{copy.shape()->Get(d), copy.src()->strides()->Get(d), copy.dst()->strides()->Get(d)};
    if (dim.size == 1)
      continue;
    if (!dims.empty() && dims.back().src == dim.size * dim.src && dims.back().dst == dim.size * dim.dst)
      dims.back() = {dims.back().size * dim.size, dim.src, dim.dst};
    else
      dims.push_back(dim);
  }
  return dims;
}

} // namespace cleave
