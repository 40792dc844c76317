// Signatures of kernels and the hash of their code.
#include "runtime/plan/Kernels.h"

#include "runtime/base/Sha256.h"
#include "runtime/plan/Text.h"
#include "runtime/plan/plan_generated.h"

namespace cleave {

namespace {

/// FNV-1a, 64 bits; numbers as 8 bytes, little endian; texts preceded by their length.
struct Hash {
  uint64_t value = 0xcbf29ce484222325u;
  void byte(uint8_t b) { value = (value ^ b) * 0x100000001b3u; }
  void number(uint64_t n) {
    for (int i = 0; i < 8; ++i)
      byte(static_cast<uint8_t>(n >> (8 * i)));
  }
  void text(std::string_view s) {
    number(s.size());
    for (char c : s)
      byte(static_cast<uint8_t>(c));
  }
  void argument(plan::DType dtype, int64_t base, int64_t perExtent, bool written) {
    number(static_cast<uint64_t>(dtype));
    number(static_cast<uint64_t>(base));
    number(static_cast<uint64_t>(perExtent));
    number(written);
  }
  void launch(uint32_t scalars, int64_t extent, int64_t grain, uint32_t threads, bool batch) {
    number(scalars);
    number(static_cast<uint64_t>(extent));
    number(static_cast<uint64_t>(grain));
    number(threads);
    number(batch);
  }
};

} // namespace

uint64_t kernelSignature(const plan::KernelInfo &kernel) {
  Hash hash;
  hash.text(viewOf(kernel.symbol()));
  hash.text(viewOf(kernel.source()));
  hash.number(kernel.arguments() ? kernel.arguments()->size() : 0);
  if (kernel.arguments())
    for (const plan::KernelArgument *a : *kernel.arguments())
      hash.argument(a->dtype(), a->base(), a->per_extent(), a->written());
  hash.launch(kernel.scalars(), kernel.extent(), kernel.grain(), kernel.threads(), kernel.batch());
  return hash.value;
}

uint64_t kernelSignature(const plan::KernelInfoT &kernel) {
  Hash hash;
  hash.text(kernel.symbol);
  hash.text(kernel.source);
  hash.number(kernel.arguments.size());
  for (const auto &a : kernel.arguments)
    hash.argument(a->dtype, a->base, a->per_extent, a->written);
  hash.launch(kernel.scalars, kernel.extent, kernel.grain, kernel.threads, kernel.batch);
  return hash.value;
}

std::vector<uint8_t> codeHash(std::span<const uint8_t> code, std::string_view ptx) {
  if (code.empty() && ptx.empty())
    return {};
  Sha256 hash;
  hash.update(code);
  hash.update({reinterpret_cast<const uint8_t *>(ptx.data()), ptx.size()});
  const auto digest = hash.finish();
  return {digest.begin(), digest.end()};
}

} // namespace cleave
