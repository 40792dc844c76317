// Decodes pictures with libjpeg-turbo and libpng, which report errors by longjmp: what they jump over has no
// destructor.
#include "runtime/base/Error.h"
#include "runtime/pictures/Picture.h"

#include <algorithm>
#include <cmath>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <fmt/format.h>
#include <jpeglib.h>
// After the types that it uses.
#include <jerror.h>
#include <png.h>

namespace cleave {
namespace {

using Bytes = std::span<const uint8_t>;

bool beginsWith(Bytes file, std::initializer_list<uint8_t> bytes) {
  return file.size() >= bytes.size() && std::equal(bytes.begin(), bytes.end(), file.begin());
}
bool isJpeg(Bytes file) { return beginsWith(file, {0xff, 0xd8, 0xff}); }
bool isPng(Bytes file) { return beginsWith(file, {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'}); }

PictureSize checkedSize(int64_t width, int64_t height, const std::string &name) {
  if (width < 1 || height < 1 || width > mostPixels / height)
    throw DamagedPicture(
        fmt::format("{}: a picture has 1 to {} pixels, found {} x {}", name, mostPixels, width, height));
  return {width, height};
}

// ---- JPEG
// ------------------------------------------------------------------------------------------------------------

struct JpegErrors {
  jpeg_error_mgr base;
  std::jmp_buf back;
  char text[JMSG_LENGTH_MAX];
};

[[noreturn]] void jpegFailed(j_common_ptr info) {
  auto *errors = reinterpret_cast<JpegErrors *>(info->err);
  info->err->format_message(info, errors->text);
  std::longjmp(errors->back, 1);
}

[[noreturn]] void jpegFails(j_common_ptr info, const char *text) {
  auto *errors = reinterpret_cast<JpegErrors *>(info->err);
  std::snprintf(errors->text, sizeof errors->text, "%s", text);
  std::longjmp(errors->back, 1);
}

/// The file ended; libjpeg itself would go on with grey.
boolean jpegEnds(j_decompress_ptr info) {
  jpegFails(reinterpret_cast<j_common_ptr>(info), "the file ends before the picture does");
}

/// Each scan of a progressive file goes over the whole picture, and a file of few bytes can have thousands.
void limitScans(j_common_ptr info) {
  constexpr int most = 500;
  if (info->is_decompressor && reinterpret_cast<j_decompress_ptr>(info)->input_scan_number > most)
    jpegFails(info, "a progressive picture has at most 500 scans");
}

void ignoreMessage(j_common_ptr) {}

/// A decoder of a file whose header is read.
class Jpeg {
public:
  Jpeg(Bytes file, const std::string &name) : name(name) {
    info.err = jpeg_std_error(&errors.base);
    errors.base.error_exit = jpegFailed;
    errors.base.output_message = ignoreMessage;
    if (setjmp(errors.back) == 0) {
      jpeg_create_decompress(&info);
      jpeg_mem_src(&info, file.data(), file.size());
      info.src->fill_input_buffer = jpegEnds;
      info.progress = &progress;
      progress.progress_monitor = limitScans;
      jpeg_read_header(&info, TRUE);
      return;
    }
    fail();
  }
  ~Jpeg() { jpeg_destroy_decompress(&info); }
  Jpeg(const Jpeg &) = delete;

  PictureSize size() const { return checkedSize(info.image_width, info.image_height, name); }

  Picture decode() {
    const PictureSize size = this->size();
    return decode(1, {0, 0, size.width, size.height}).picture;
  }

  /// A part of the picture, made smaller.
  struct Decoded {
    Picture picture;
    PictureBox box; ///< of the smaller picture; at least what was asked for
  };
  /// Decodes at the scale 1 / `smaller`, a power of two, what covers this box of the whole picture.
  Decoded decode(unsigned smaller, const PictureBox &wanted) {
    const bool cmyk = info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
    const PictureSize whole = this->size();
    info.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
    info.scale_num = 1;
    info.scale_denom = smaller;
    Decoded made{};
    if (setjmp(errors.back) == 0) {
      jpeg_start_decompress(&info);
      // Of a progressive file that lacks scans, libjpeg smooths what it knows, across the edges of any part.
      const bool partly = !info.progressive_mode && (wanted.width < whole.width || wanted.height < whole.height);
      made.box = partly
                     ? covering(wanted, 1.0 / smaller) // also where the size is no multiple: the last pixels cover less
                     : PictureBox{0, 0, info.output_width, info.output_height};
      if (partly) {
        auto x = static_cast<JDIMENSION>(made.box.x), width = static_cast<JDIMENSION>(made.box.width);
        jpeg_crop_scanline(&info, &x, &width);
        made.box.x = x, made.box.width = width;
        jpeg_skip_scanlines(&info, static_cast<JDIMENSION>(made.box.y));
      }
      made.picture.width = made.box.width, made.picture.height = made.box.height;
      made.picture.pixels.resize(static_cast<size_t>(3 * made.box.width * made.box.height));
      line.resize(static_cast<size_t>(cmyk ? 4 * made.box.width : 0));
      for (int64_t y = 0; y < made.box.height; ++y) {
        uint8_t *row = made.picture.row(y), *to = cmyk ? line.data() : row;
        jpeg_read_scanlines(&info, &to, 1);
        for (int64_t x = 0; cmyk && x < made.box.width; ++x)
          toRgb(line.data() + 4 * x, row + 3 * x);
      }
      if (!partly)
        jpeg_finish_decompress(&info);
      return made;
    }
    fail();
  }

private:
  /// The box after scaling, with a margin: pixels at the edge of what is decoded lack neighbours from which the colours
  /// are interpolated.
  PictureBox covering(const PictureBox &box, double scale) const {
    constexpr int64_t margin = 4;
    const auto range = [scale](int64_t begin, int64_t count, int64_t most) {
      const auto first = std::max<int64_t>(0, static_cast<int64_t>(static_cast<double>(begin) * scale) - margin),
                 last = std::min(most,
                                 static_cast<int64_t>(std::ceil(static_cast<double>(begin + count) * scale)) + margin);
      return std::pair(first, last - first);
    };
    const auto [x, width] = range(box.x, box.width, info.output_width);
    const auto [y, height] = range(box.y, box.height, info.output_height);
    return {x, y, width, height};
  }

  [[noreturn]] void fail() {
    const std::string text = errors.text;
    const bool memory = errors.base.msg_code == JERR_OUT_OF_MEMORY;
    jpeg_destroy_decompress(&info);
    if (memory)
      throw environmentError(fmt::format("{}: no memory to decode it: {}", name, text));
    throw DamagedPicture(fmt::format("{}: damaged JPEG: {}", name, text));
  }

  /// CMYK is stored inverted, as Adobe's programs write it.
  static void toRgb(const uint8_t *cmyk, uint8_t *to) {
    for (int c = 0; c < 3; ++c) {
      const int product = (255 - cmyk[c]) * cmyk[3] + 128;
      to[c] = static_cast<uint8_t>(cmyk[3] - (((product >> 8) + product) >> 8));
    }
  }

  const std::string &name;
  jpeg_decompress_struct info{};
  JpegErrors errors{};
  jpeg_progress_mgr progress{};
  std::vector<uint8_t> line;
};

// ---- PNG
// -------------------------------------------------------------------------------------------------------------

struct PngInput {
  Bytes left;
  char text[256];
};

[[noreturn]] void pngFailed(png_structp png, png_const_charp text) {
  auto *input = static_cast<PngInput *>(png_get_error_ptr(png));
  std::snprintf(input->text, sizeof input->text, "%s", text);
  png_longjmp(png, 1);
}

void ignoreWarning(png_structp, png_const_charp) {}

void readPng(png_structp png, png_bytep to, size_t count) {
  auto *input = static_cast<PngInput *>(png_get_io_ptr(png));
  if (input->left.size() < count)
    png_error(png, "the file ends before the picture does");
  std::memcpy(to, input->left.data(), count);
  input->left = input->left.subspan(count);
}

class Png {
public:
  Png(Bytes file, const std::string &name) : name(name), input{file, {}} {
    png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &input, pngFailed, ignoreWarning);
    info = png ? png_create_info_struct(png) : nullptr;
    if (!info) {
      png_destroy_read_struct(&png, &info, nullptr);
      throw environmentError(fmt::format("{}: no memory for a PNG decoder", name));
    }
    if (setjmp(png_jmpbuf(png)) == 0) {
      png_set_read_fn(png, &input, readPng);
      png_read_info(png, info);
      return;
    }
    fail();
  }
  ~Png() { png_destroy_read_struct(&png, &info, nullptr); }
  Png(const Png &) = delete;

  PictureSize size() const {
    return checkedSize(png_get_image_width(png, info), png_get_image_height(png, info), name);
  }

  Picture decode() {
    const PictureSize size = this->size();
    const int type = png_get_color_type(png, info), bits = png_get_bit_depth(png, info);
    const bool deepGrey = type == PNG_COLOR_TYPE_GRAY && bits == 16;
    Picture picture{size.width, size.height, std::vector<uint8_t>(static_cast<size_t>(3 * size.width * size.height))};
    deep.resize(static_cast<size_t>(deepGrey ? 2 * size.width * size.height : 0));
    for (int64_t y = 0; y < size.height; ++y)
      rows.push_back(deepGrey ? deep.data() + 2 * size.width * y : picture.row(y));
    if (setjmp(png_jmpbuf(png)) == 0) {
      if (!deepGrey) {
        png_set_palette_to_rgb(png);
        if (bits < 8)
          png_set_expand_gray_1_2_4_to_8(png);
        png_set_strip_16(png);
        png_set_strip_alpha(png);
        png_set_gray_to_rgb(png);
      }
      png_set_interlace_handling(png);
      png_read_update_info(png, info);
      png_read_image(png, rows.data());
      png_read_end(png, nullptr);
    } else {
      fail();
    }
    for (size_t i = 0; i < deep.size() / 2; ++i) // the first byte is the upper one
      std::fill_n(picture.pixels.begin() + static_cast<std::ptrdiff_t>(3 * i), 3, deep[2 * i] ? 255 : deep[2 * i + 1]);
    return picture;
  }

private:
  [[noreturn]] void fail() {
    const std::string text = input.text;
    png_destroy_read_struct(&png, &info, nullptr);
    if (text == "Out of memory" || text == "insufficient memory") // of libpng, and of zlib
      throw environmentError(fmt::format("{}: no memory to decode it: {}", name, text));
    throw DamagedPicture(fmt::format("{}: damaged PNG: {}", name, text));
  }

  const std::string &name;
  PngInput input;
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::vector<uint8_t> deep;
  std::vector<png_bytep> rows;
};

/// Calls `read` with a decoder for the file's type.
auto withDecoder(Bytes file, const std::string &name, auto read) {
  if (isJpeg(file)) {
    Jpeg jpeg(file, name);
    return read(jpeg);
  }
  if (isPng(file)) {
    Png png(file, name);
    return read(png);
  }
  throw DamagedPicture(
      fmt::format("{}: {}", name, file.empty() ? "is empty" : "is neither a JPEG nor a PNG, by its first bytes"));
}

} // namespace

PictureSize pictureSize(Bytes file, const std::string &name) {
  return withDecoder(file, name, [](const auto &decoder) { return decoder.size(); });
}

Picture decodePart(Bytes file, const std::string &name, const ScaledPart &part, DecodeMode mode) {
  const auto &[box, height, width, filter] = part;
  if (!isJpeg(file))
    return resized(decodePicture(file, name), box, width, height, filter);
  Jpeg jpeg(file, name);
  unsigned smaller = 1;
  while (mode == DecodeMode::Fast && smaller < 8 && box.width >= int64_t{2} * smaller * width &&
         box.height >= int64_t{2} * smaller * height)
    smaller *= 2;
  const Jpeg::Decoded decoded = jpeg.decode(smaller, box);
  if (smaller == 1)
    return resized(decoded.picture, {box.x - decoded.box.x, box.y - decoded.box.y, box.width, box.height}, width,
                   height, filter);
  const double scale = 1.0 / smaller;
  const auto within = [&](int64_t at, int64_t begin) {
    return static_cast<double>(at) * scale - static_cast<double>(begin);
  };
  return resampled(decoded.picture,
                   {within(box.x, decoded.box.x), within(box.y, decoded.box.y), static_cast<double>(box.width) * scale,
                    static_cast<double>(box.height) * scale},
                   width, height, filter);
}

Picture decodePicture(Bytes file, const std::string &name) {
  return withDecoder(file, name, [](auto &decoder) { return decoder.decode(); });
}

} // namespace cleave
