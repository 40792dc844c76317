// Secrets and their proofs, by OpenSSL's libcrypto.
#include "runtime/comm/socket/SecretProof.h"

#include "runtime/base/Error.h"
#include "runtime/base/InputFile.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <openssl/crypto.h>
#include <openssl/hmac.h>

namespace cleave {

std::string jobSecret() {
  if (const char *text = std::getenv("CLEAVE_SECRET"))
    return text;
  const char *file = std::getenv("CLEAVE_SECRET_FILE");
  return file && *file ? readTextFile(file, Status::User, 1 << 16) : "";
}

Proof proofOf(Hello hello, const Nonce &nonce, const std::string &secret) {
  hello.proof = {};
  std::array<uint8_t, sizeof nonce + sizeof hello> text;
  std::memcpy(text.data(), &nonce, sizeof nonce);
  std::memcpy(text.data() + sizeof nonce, &hello, sizeof hello);
  std::array<uint8_t, 32> code;
  if (!HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()), text.data(), text.size(), code.data(),
            nullptr))
    throw environmentError("libcrypto (OpenSSL) cannot compute HMAC-SHA-256");
  Proof proof;
  std::copy_n(code.begin(), proof.size(), proof.begin());
  return proof;
}

bool hasProof(const Hello &hello, const Nonce &nonce, const std::string &secret) {
  return CRYPTO_memcmp(proofOf(hello, nonce, secret).data(), hello.proof.data(), sizeof hello.proof) == 0;
}

} // namespace cleave
