// Unpredictable random numbers for names and secrets. Training uses Philox.h instead.
#pragma once
#include <cstdint>
#include <random>

namespace cleave {

/// 64 random bits from the operating system.
inline uint64_t randomBits() {
  std::random_device source;
  return uint64_t{source()} << 32 | source();
}

} // namespace cleave
