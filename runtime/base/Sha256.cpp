// SHA-256 by OpenSSL's libcrypto.
#include "runtime/base/Sha256.h"

#include "runtime/base/Error.h"
#include "runtime/base/InputFile.h"

#include <openssl/evp.h>

namespace cleave {

static void require(bool done) {
  if (!done) // also if the configuration of OpenSSL on this machine excludes it
    throw environmentError("libcrypto (OpenSSL) cannot compute SHA-256");
}

void Sha256::Free::operator()(evp_md_ctx_st *context) const { EVP_MD_CTX_free(context); }

Sha256::Sha256() : context(EVP_MD_CTX_new()) {
  require(context && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr));
}

void Sha256::update(std::span<const uint8_t> bytes) {
  require(EVP_DigestUpdate(context.get(), bytes.data(), bytes.size()));
}

std::array<uint8_t, 32> Sha256::finish() {
  std::array<uint8_t, 32> digest;
  require(EVP_DigestFinal_ex(context.get(), digest.data(), nullptr));
  return digest;
}

std::array<uint8_t, 32> sha256(std::span<const uint8_t> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish();
}

std::string toHex(std::span<const uint8_t> bytes) {
  std::string text;
  for (uint8_t byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

std::string digestOf(const std::string &text) {
  const auto hash = sha256({reinterpret_cast<const uint8_t *>(text.data()), text.size()});
  return "sha256:" + toHex(hash).substr(0, 12);
}

std::string digestOfFile(const std::string &path) {
  if (path.empty())
    return "none";
  try {
    return digestOf(readTextFile(path));
  } catch (const Error &) { // the reader of the file reports the error
    return "none";
  }
}

} // namespace cleave
