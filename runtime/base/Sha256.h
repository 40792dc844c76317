// SHA-256 (FIPS 180-4), for the integrity of plans and checkpoints.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace cleave {

class Sha256 {
public:
  void update(std::span<const uint8_t> bytes);
  /// Returns the digest. The object must not be used afterwards.
  std::array<uint8_t, 32> finish();

private:
  void block(const uint8_t *bytes);
  std::array<uint32_t, 8> state{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> pending{};
  uint64_t length = 0;
};

std::array<uint8_t, 32> sha256(std::span<const uint8_t> bytes);
/// Lower-case hexadecimal digits.
std::string toHex(std::span<const uint8_t> bytes);

} // namespace cleave
