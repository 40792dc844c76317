// A matrix product as strides, brought to the form a library wants: no needless batch dimensions, the result row-major.
#pragma once
#include "runtime/plan/PlanTypes.h"

#include <cstdint>
#include <vector>

namespace cleave::plan {
struct Matmul;
}

namespace cleave {

struct MatmulOperand {
  std::vector<int64_t> batch; ///< element strides of the batch dimensions
  int64_t row = 0, column = 0;
};

/// c[batch, m, n] (+)= a[batch, m, k] * b[batch, k, n]
struct MatmulShape {
  std::vector<int64_t> batch;
  int64_t m = 0, n = 0, k = 0;
  MatmulOperand a, b, c;
  bool exchanged = false; ///< a and b have changed places, so that c's columns are contiguous: c^T = b^T a^T
  int64_t batches() const;
};

/// Batch dimensions of one element dropped, neighbours joined, a shared b folded into the rows; c row-major.
MatmulShape matmulShape(const plan::Matmul &matmul);

} // namespace cleave
