// Numbers that nobody can guess, for names and secrets; what training draws is in Philox.h.
#pragma once
#include <cstdint>
#include <random>

namespace cleave {

/// 64 random bits of the system's.
inline uint64_t randomBits() {
  std::random_device source;
  return uint64_t{source()} << 32 | source();
}

} // namespace cleave
