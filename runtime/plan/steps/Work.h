// The work of a step: what it computes, and the bytes that it reads and writes. The cost model turns it into a time.
#pragma once
#include "runtime/plan/PlanTypes.h"

#include <cstddef>
#include <cstdint>

namespace cleave {

/// Kinds of steps that reach different fractions of a device's peaks.
enum class WorkClass : uint8_t {
  None,        ///< takes no time of its own
  Product,     ///< matrix product
  Convolution, ///< implicit matrix product: m = output elements of a channel, n = channels, k = what is summed
  Attention,   ///< fused: two products for each row of scores, without the scores in memory
  Stream,      ///< elementwise and reducing kernels: bytes only
  Copy,        ///< strided copies
  Lookup,      ///< rows read or added at indices
  Pooling,     ///< windows that overlap
  Random       ///< random numbers: bytes, and integer work
};
constexpr size_t workClassCount = 9;

namespace steps {

struct Work {
  WorkClass kind = WorkClass::None;
  double flops = 0;            ///< operations, counted as in the device's peak rate
  double bytes = 0;            ///< read and written, every operand once
  plan::DType factors{};       ///< Product, Convolution, Attention: the element type of the factors
  int64_t m = 0, n = 0, k = 0; ///< Product, Convolution; of one product of the batch
  int64_t batch = 1;           ///< Product: products; Convolution: groups
  bool winograd = false;       ///< Convolution: by Winograd's method
  bool backward = false;       ///< Attention
  double scoreBytes = 0;       ///< Attention: of the score matrix, for devices without a fused kernel
  int64_t kernels = 1;         ///< launches
  double functions = 0;        ///< Stream: evaluations of exp, tanh and the like
};

} // namespace steps
} // namespace cleave
