// Writes PNG files.
#include "runtime/base/Error.h"
#include "runtime/pictures/Picture.h"

#include <fmt/format.h>
#include <png.h>

namespace cleave {

std::vector<uint8_t> encodePng(const Picture &picture) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(picture.width);
  image.height = static_cast<png_uint_32>(picture.height);
  image.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = 0;
  std::vector<uint8_t> bytes;
  for (int pass = 0; pass < 2; ++pass) { // the first one finds the size
    if (!png_image_write_to_memory(&image, pass ? bytes.data() : nullptr, &size, 0, picture.pixels.data(), 0, nullptr))
      throw environmentError(fmt::format("a picture cannot be written as PNG: {}", image.message));
    bytes.resize(size);
  }
  return bytes;
}

} // namespace cleave
