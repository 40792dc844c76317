// Pictures: any bytes are rejected with an Error or give a picture of the size in the header; so are parts of them.
#include "runtime/pictures/Picture.h"
#include "runtime/base/Error.h"

#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  cleave::PictureSize whole;
  try {
    const cleave::PictureSize said = cleave::pictureSize({data, size}, "fuzz");
    if (said.width * said.height > 1 << 20) // its time is not what is tested
      return 0;
    const cleave::Picture picture = cleave::decodePicture({data, size}, "fuzz");
    if (picture.width != said.width || picture.height != said.height ||
        picture.pixels.size() != static_cast<size_t>(3 * said.width * said.height))
      std::abort();
    whole = said;
  } catch (const cleave::Error &) {
  }
  try { // a part is also read of a picture that is damaged elsewhere
    const cleave::PictureSize said = cleave::pictureSize({data, size}, "fuzz");
    if (said.width * said.height > 1 << 20)
      return 0;
    uint64_t random = 0; // of the last bytes
    for (size_t i = size < 8 ? 0 : size - 8; i < size; ++i)
      random = random << 8 | data[i];
    const auto below = [&](int64_t most) {
      const auto number = static_cast<int64_t>(random % static_cast<uint64_t>(most));
      random = random / static_cast<uint64_t>(most) * 6364136223846793005ULL + 1442695040888963407ULL;
      return number;
    };
    cleave::ScaledPart part{
        {below(said.width), below(said.height)}, 1 + below(40), 1 + below(40), cleave::Resampling::Bilinear};
    part.box.width = 1 + below(said.width - part.box.x), part.box.height = 1 + below(said.height - part.box.y);
    for (const auto mode : {cleave::DecodeMode::Exact, cleave::DecodeMode::Fast}) {
      const cleave::Picture picture = cleave::decodePart({data, size}, "fuzz", part, mode);
      if (picture.width != part.width || picture.height != part.height ||
          picture.pixels.size() != static_cast<size_t>(3 * part.width * part.height))
        std::abort();
      if (mode == cleave::DecodeMode::Exact && whole.width > 0 &&
          picture.pixels != cleave::resized(cleave::decodePicture({data, size}, "fuzz"), part.box, part.width,
                                            part.height, part.filter)
                                .pixels)
        std::abort();
    }
  } catch (const cleave::Error &) {
  }
  return 0;
}
