// Pictures: any bytes are rejected with an Error or give a picture of the size in the header.
#include "runtime/pictures/Picture.h"
#include "runtime/base/Error.h"

#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  try {
    const cleave::PictureSize said = cleave::pictureSize({data, size}, "fuzz");
    if (said.width * said.height > 1 << 20) // its time is not what is tested
      return 0;
    const cleave::Picture picture = cleave::decodePicture({data, size}, "fuzz");
    if (picture.width != said.width || picture.height != said.height ||
        picture.pixels.size() != static_cast<size_t>(3 * said.width * said.height))
      std::abort();
  } catch (const cleave::Error &) {
  }
  return 0;
}
