// A matrix product as strides, in a form that libraries accept: minimal batch dimensions, the result row-major.
#pragma once
#include "runtime/plan/PlanTypes.h"

#include <cstdint>
#include <vector>

namespace cleave::plan {
struct Conv;
struct Matmul;
} // namespace cleave::plan

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
  bool exchanged = false; ///< a and b are exchanged, so that c's columns are contiguous: c^T = b^T a^T
  int64_t batches() const;
};

/// Drops batch dimensions of size 1, merges adjacent ones, folds a shared b into the rows, and makes c row-major.
MatmulShape matmulShape(const plan::Matmul &matmul);

/// Whether a convolution is one matrix product of its operands as they lie in memory: channels last, 1x1 windows that
/// reach every pixel, one group.
bool isProduct(const plan::Conv &conv);
/// That product: of pixels and weights, or of two matrices of pixels.
MatmulShape matmulShape(const plan::Conv &conv);

} // namespace cleave
