// Manifests: any text is refused with an Error, or prints and reads back as it was.
#include "runtime/checkpoint/Manifest.h"
#include "runtime/base/Error.h"

#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  try {
    const auto manifest = cleave::parseManifest({reinterpret_cast<const char *>(data), size}, "fuzz");
    const std::string text = cleave::printManifest(manifest);
    if (cleave::printManifest(cleave::parseManifest(text, "again")) != text)
      std::abort();
  } catch (const cleave::Error &) {
  }
  return 0;
}
