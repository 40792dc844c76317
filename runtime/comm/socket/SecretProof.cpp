// Secrets and their proofs, by OpenSSL's libcrypto.
#include "runtime/comm/socket/SecretProof.h"

#include "runtime/base/Error.h"
#include "runtime/base/InputFile.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <unistd.h>

namespace cleave {

/// What is left of a secret without the line break that ends a file.
static std::string withoutLineBreak(std::string text, const std::string &from) {
  while (text.ends_with('\n') || text.ends_with('\r'))
    text.pop_back();
  if (text.empty())
    throw userError(from + ": the secret is empty: give one, or unset the variable");
  return text;
}

/// A file that others can change or read holds no secret. Its group may read it: its members were chosen.
static std::string secretIn(const char *name) {
  const std::string from = fmt::format("CLEAVE_SECRET_FILE={}", name);
  if (!*name)
    return withoutLineBreak("", from);
  const InputFile file(name, Status::User);
  if (file.mode() & 027)
    throw userError(fmt::format("{}: others must not read or write the file of a secret, its mode is {:04o}: "
                                "chmod 600 {}",
                                from, file.mode(), name));
  if (file.owner() != ::geteuid() && file.owner() != 0)
    throw userError(
        fmt::format("{}: the file of a secret must be the user's or root's, its owner is user {}", from, file.owner()));
  constexpr uint64_t most = 1 << 16;
  if (file.size() > most)
    throw userError(fmt::format("{}: a secret has at most {} bytes, found {}", from, most, file.size()));
  std::string text(file.size(), '\0');
  file.read(text.data(), text.size(), 0);
  return withoutLineBreak(text, from);
}

std::string jobSecret() {
  const char *text = std::getenv("CLEAVE_SECRET"), *file = std::getenv("CLEAVE_SECRET_FILE");
  if (text && file)
    throw userError("CLEAVE_SECRET and CLEAVE_SECRET_FILE are both set: one of them must be unset");
  return text ? withoutLineBreak(text, "CLEAVE_SECRET") : file ? secretIn(file) : "";
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
