// Manifests: any text is rejected with an Error, or prints and reads back unchanged. The checksum is corrected first,
// so that the checks after it are reached.
#include "runtime/checkpoint/Manifest.h"
#include "runtime/base/Error.h"

#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  try {
    const auto manifest = cleave::parseManifest(cleave::sealManifest({reinterpret_cast<const char *>(data), size}), "fuzz");
    const std::string text = cleave::printManifest(manifest);
    if (cleave::printManifest(cleave::parseManifest(text, "again")) != text)
      std::abort();
  } catch (const cleave::Error &) {
  }
  return 0;
}
