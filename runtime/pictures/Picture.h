// Pictures in memory: decoded from files, and resized. The pixels are those of Pillow and torchvision.
#pragma once
#include "cleave/Transforms.h"
#include "runtime/base/Error.h"

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

/// The grey of a pixel: Pillow's convert("L").
inline uint8_t greyOf(const uint8_t *rgb) {
  return static_cast<uint8_t>((19595 * rgb[0] + 38470 * rgb[1] + 7471 * rgb[2] + 0x8000) >> 16);
}

/// The most pixels of a picture: as many as Pillow takes before it warns, so that a small file cannot ask for much
/// memory.
constexpr int64_t mostPixels = 89'478'485;

struct PictureSize {
  int64_t width = 0, height = 0;
};

/// What a decoder says of bytes that were read: they are no picture, or a damaged one. A user error.
class DamagedPicture : public Error {
public:
  explicit DamagedPicture(const std::string &message) : Error(Status::User, message) {}
};

/// The size that a file's header gives. Throws as decodePicture().
PictureSize pictureSize(std::span<const uint8_t> file, const std::string &name);

/// Decodes a JPEG or PNG file; its content tells which. Other colours become RGB as by Pillow's convert("RGB"): grey
/// is repeated, palettes are looked up, alpha is dropped, CMYK is inverted as Adobe's; of 16 bits a channel the upper 8
/// are kept, but grey of 16 bits is cut off at 255. EXIF orientations are ignored, as torchvision does. Throws
/// DamagedPicture that names the file and what is wrong with it: another type, a file that ends early, more than
/// mostPixels; environmentError if there is not enough memory.
Picture decodePicture(std::span<const uint8_t> file, const std::string &name);

/// A box of a picture.
struct PictureBox {
  int64_t x = 0, y = 0, width = 0, height = 0;
};

/// A part of a picture, scaled to `width` x `height`.
struct ScaledPart {
  PictureBox box;
  int64_t height, width;
  Resampling filter;
};

/// How exactly a part of a JPEG is decoded.
enum class DecodeMode : uint8_t {
  Exact, ///< as by decodePicture() and resized(), bit for bit
  Fast   ///< where the part is made smaller by 2 or more, the decoder makes it smaller by 2, 4 or 8 first
};

/// The part of a file's picture. Of a JPEG only what the part needs is decoded, so damage elsewhere may not be found.
/// Throws as decodePicture().
Picture decodePart(std::span<const uint8_t> file, const std::string &name, const ScaledPart &part, DecodeMode mode);

/// The box, which lies in the picture, scaled to `width` x `height`: resize() of the crop by Pillow 13, bit for bit.
/// Where the result is smaller, the filter covers as much of the source as a pixel of the result (antialiasing).
Picture resized(const Picture &picture, const PictureBox &box, int64_t width, int64_t height, Resampling filter);

/// A box with edges between pixels.
struct FractionBox {
  double x = 0, y = 0, width = 0, height = 0;
};
/// The same for such a box: Pillow's resize() with a box, of the pixels that it touches.
Picture resampled(const Picture &picture, const FractionBox &box, int64_t width, int64_t height, Resampling filter);

/// A PNG file of 8 bits.
std::vector<uint8_t> encodePng(const Picture &picture);

/// The box alone.
Picture cropped(const Picture &picture, const PictureBox &box);

} // namespace cleave
