// The work of one step of a plan for the cost model: what it computes and the bytes that it reads and writes.
//
// StepWork is a plain value, so that it can be written down without a plan: by a test, or by a search for a split.
#pragma once
#include "partitioner/cluster/Cluster.h"
#include "runtime/plan/PlanTypes.h"

#include <cstdint>

namespace cleave::partitioner {

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
/// "product", "convolution", ...
const char *workClassName(WorkClass kind);

struct StepWork {
  WorkClass kind = WorkClass::None;
  double flops = 0;            ///< operations, counted as in the device's peak rate
  double bytes = 0;            ///< read and written, every operand once
  Rate rate = Rate::Fp32;      ///< precision of the factors
  int64_t m = 0, n = 0, k = 0; ///< Product, Convolution; of one product of the batch
  int64_t batch = 1;           ///< Product: products; Convolution: groups
  bool winograd = false;       ///< Convolution: 3 x 3, stride 1: Winograd's algorithm applies
  bool backward = false;       ///< Attention
  double scoreBytes = 0;       ///< Attention: of the score matrix, for devices without a fused kernel
  int64_t kernels = 1;         ///< launches
};

/// The work of a step of a checked plan. A product of f32 factors has the rate tf32 if the plan's training allows it.
StepWork workOf(const plan::Plan &plan, const plan::Program &program, const plan::Step &step);

} // namespace cleave::partitioner
