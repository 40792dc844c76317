// Pictures in memory: decoded from files, and resized. The pixels are those of Pillow and torchvision.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace cleave {

/// Red, green and blue of 8 bits: [height, width, 3].
struct Picture {
  int64_t width = 0, height = 0;
  std::vector<uint8_t> pixels;

  static constexpr int64_t channels = 3;
  const uint8_t *row(int64_t y) const { return pixels.data() + channels * width * y; }
  uint8_t *row(int64_t y) { return pixels.data() + channels * width * y; }
};

/// The most pixels of a picture: as many as Pillow takes before it warns, so that a small file cannot ask for much
/// memory.
constexpr int64_t mostPixels = 89'478'485;

struct PictureSize {
  int64_t width = 0, height = 0;
};

/// The size that a file's header gives. Throws as decodePicture().
PictureSize pictureSize(std::span<const uint8_t> file, const std::string &name);

/// Decodes a JPEG or PNG file; its content tells which. Other colours become RGB as by Pillow's convert("RGB"): grey
/// is repeated, palettes are looked up, alpha is dropped, CMYK is inverted as Adobe's; of 16 bits a channel the upper 8
/// are kept, but grey of 16 bits is cut off at 255. EXIF orientations are ignored, as torchvision does. Throws
/// userError that names the file and what is wrong with it: another type, a file that ends early, more than mostPixels.
Picture decodePicture(std::span<const uint8_t> file, const std::string &name);

enum class Resampling : uint8_t { Bilinear, Bicubic };

/// A box of a picture.
struct PictureBox {
  int64_t x = 0, y = 0, width = 0, height = 0;
};

/// The box, which lies in the picture, scaled to `width` x `height`: Pillow's resize() of the crop, bit for bit. Where
/// the result is smaller, the filter covers as much of the source as a pixel of the result (antialiasing).
Picture resized(const Picture &picture, const PictureBox &box, int64_t width, int64_t height, Resampling filter);

/// The box alone.
Picture cropped(const Picture &picture, const PictureBox &box);

} // namespace cleave
