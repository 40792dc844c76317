// Counts of floating-point operations for what is described in several forms: an op of the graph, a step of a plan.
#pragma once
#include <cstdint>
#include <initializer_list>

namespace cleave {

/// Of attention: `products` matrix products (2 forward, 5 backward) over these sizes, a multiplication and an addition
/// for each term. Under a causal mask the last row sees all keys and each row before it one less: half of the scores if there
/// are as many rows as keys.
constexpr double attentionFlops(int64_t batch, int64_t heads, int64_t rows, int64_t keys, int64_t width, int products,
                                bool causal) {
  double flops = 2.0 * products;
  for (int64_t size : {batch, heads, rows, width})
    flops *= static_cast<double>(size);
  return flops * (static_cast<double>(keys) - (causal ? static_cast<double>(rows) / 2 : 0));
}

} // namespace cleave
