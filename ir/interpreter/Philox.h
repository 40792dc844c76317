// Philox4x32-10 (Salmon, Moraes, Dror and Shaw 2011, Parallel random numbers: as easy as 1, 2, 3). A separate
// implementation, because the interpreter shares no code with the runtime that it checks.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace cleave::ir {

inline std::array<uint32_t, 4> philoxBlock(uint64_t key, std::array<uint32_t, 4> counter) {
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
    uint64_t low = 0xD2511F53ull * counter[0], high = 0xCD9E8D57ull * counter[2];
    counter = {static_cast<uint32_t>(high >> 32) ^ counter[1] ^ k0, static_cast<uint32_t>(high),
               static_cast<uint32_t>(low >> 32) ^ counter[3] ^ k1, static_cast<uint32_t>(low)};
  }
  return counter;
}

/// Element `index` of `stream` under `key`, uniform in [0, 1): a multiple of 2^-24.
inline double philoxUniform(uint64_t key, uint64_t stream, uint64_t index) {
  uint64_t block = index / 4;
  auto words = philoxBlock(key, {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                                 static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)});
  return (words[index % 4] >> 8) * 0x1p-24;
}

/// Hash of a name, used as a key: FNV-1a with 64 bits.
inline uint64_t hashName(std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325ull;
  for (char c : name)
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ull;
  return hash;
}

} // namespace cleave::ir
