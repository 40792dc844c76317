// Safetensors headers: any text is rejected with an Error or describes ranges inside the file.
#include "runtime/checkpoint/Safetensors.h"
#include "runtime/base/Error.h"

#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const uint64_t fileSize = 8 + size + 64;
  try {
    const auto header = cleave::parseSafetensors({reinterpret_cast<const char *>(data), size}, fileSize, "fuzz");
    for (const auto &[key, entry] : header.entries)
      if (entry.begin > entry.end || header.dataStart + entry.end > fileSize)
        std::abort();
  } catch (const cleave::Error &) {
  }
  return 0;
}
