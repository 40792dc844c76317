// SHA-256 (FIPS 180-4), for the integrity of plans and checkpoints. Computed by OpenSSL's libcrypto.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

struct evp_md_ctx_st; // libcrypto's EVP_MD_CTX

namespace cleave {

class Sha256 {
public:
  /// Throws an environment error if libcrypto cannot compute SHA-256.
  Sha256();
  void update(std::span<const uint8_t> bytes);
  /// Returns the digest. The object must not be used afterwards.
  std::array<uint8_t, 32> finish();

private:
  struct Free {
    void operator()(evp_md_ctx_st *context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context;
};

std::array<uint8_t, 32> sha256(std::span<const uint8_t> bytes);
/// Lower-case hexadecimal digits.
std::string toHex(std::span<const uint8_t> bytes);

/// "sha256:" and the first digits of a text's or file's hash; "none" for an empty name or a missing file.
std::string digestOf(const std::string &text);
std::string digestOfFile(const std::string &path);

} // namespace cleave
