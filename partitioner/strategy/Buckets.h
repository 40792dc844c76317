// Buckets of gradients, which ranks sum as one message.
#pragma once
#include <cstdint>

namespace cleave::partitioner {

/// Maximum size of a bucket in bytes. A larger one would wait too long for its last gradient.
constexpr int64_t gradientBucketBytes = 25 << 20;

} // namespace cleave::partitioner
