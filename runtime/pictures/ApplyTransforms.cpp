// Transforms: boxes first, then pixels. Boxes are drawn as torchvision draws them, from other random numbers.
#include "runtime/pictures/ApplyTransforms.h"
#include "runtime/base/Error.h"
#include "runtime/base/TransformFields.h"
#include "runtime/pictures/Colors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <optional>
#include <utility>

namespace cleave {
namespace {

int64_t widthOf(const auto &transform) { return transform.width > 0 ? transform.width : transform.size; }

/// Half of `excess`, rounded to even as Python's round() does.
int64_t halfOf(int64_t excess) { return static_cast<int64_t>(std::nearbyint(static_cast<double>(excess) / 2)); }

/// The picture with black pixels around it.
Picture padded(const Picture &picture, int64_t left, int64_t top, int64_t right, int64_t bottom) {
  Picture result{picture.width + left + right, picture.height + top + bottom, {}};
  result.pixels.resize(static_cast<size_t>(3 * result.width * result.height));
  for (int64_t y = 0; y < picture.height; ++y)
    std::memcpy(result.row(y + top) + 3 * left, picture.row(y), static_cast<size_t>(3 * picture.width));
  return result;
}

/// The size after Resize.
PictureSize resizedSize(const Resize &resize, PictureSize from) {
  if (resize.width > 0)
    return {resize.width, resize.size};
  if (from.width <= from.height)
    return {resize.size, resize.size * from.height / from.width};
  return {resize.size * from.width / from.height, resize.size};
}

/// A box with a random part of the area and a random ratio of width to height; nullopt if ten do not fit.
std::optional<PictureBox> drawBox(const auto &of, PictureSize in, Random &random, bool mayBeWhole) {
  const double area = static_cast<double>(in.width * in.height);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double part = area * random.uniform(of.leastArea, of.mostArea),
                 ratio = std::exp(random.uniform(std::log(of.leastRatio), std::log(of.mostRatio)));
    const auto width = static_cast<int64_t>(std::nearbyint(std::sqrt(part * ratio))),
               height = static_cast<int64_t>(std::nearbyint(std::sqrt(part / ratio)));
    const int64_t most = mayBeWhole ? 0 : 1;
    if (width < 1 || height < 1 || width > in.width - most || height > in.height - most)
      continue;
    const int64_t y = random.integer(0, in.height - height + 1), x = random.integer(0, in.width - width + 1);
    return PictureBox{x, y, width, height};
  }
  return std::nullopt;
}

/// What RandomResizedCrop takes.
PictureBox drawCrop(const RandomResizedCrop &crop, PictureSize in, Random &random) {
  if (const auto box = drawBox(crop, in, random, true))
    return *box;
  const double ratio = static_cast<double>(in.width) / static_cast<double>(in.height);
  int64_t width = in.width, height = in.height;
  if (ratio < crop.leastRatio)
    height = std::clamp<int64_t>(std::llround(static_cast<double>(width) / crop.leastRatio), 1, height);
  else if (ratio > crop.mostRatio)
    width = std::clamp<int64_t>(std::llround(static_cast<double>(height) * crop.mostRatio), 1, width);
  return {(in.width - width) / 2, (in.height - height) / 2, width, height};
}

/// A picture on its way through the transforms: encoded, then bytes.
class Pixels {
public:
  Pixels(const EncodedPicture &from, const std::string &name) : from(from), name(name) {}

  void apply(const Resize &resize, Random) {
    const PictureSize now = size(), to = resizedSize(resize, now);
    take({{0, 0, now.width, now.height}, to.height, to.width, resize.filter});
  }
  void apply(const RandomResizedCrop &crop, Random random) {
    take({drawCrop(crop, size(), random), crop.size, widthOf(crop), crop.filter});
  }
  void apply(const CenterCrop &crop, Random) {
    const int64_t width = widthOf(crop), height = crop.size;
    const PictureSize now = size();
    const int64_t wide = std::max<int64_t>(0, width - now.width), high = std::max<int64_t>(0, height - now.height);
    if (wide || high)
      picture() = padded(picture(), wide / 2, high / 2, (wide + 1) / 2, (high + 1) / 2);
    picture() = cropped(picture(), {halfOf(size().width - width), halfOf(size().height - height), width, height});
  }
  void apply(const RandomCrop &crop, Random random) {
    if (crop.padding)
      picture() = padded(picture(), crop.padding, crop.padding, crop.padding, crop.padding);
    const int64_t width = widthOf(crop), height = crop.size;
    const PictureSize now = size();
    if (now.width < width || now.height < height)
      throw userError(fmt::format("{}: RandomCrop takes {} x {} pixels, the picture has {} x {}", name, width, height,
                                  now.width, now.height));
    const int64_t y = random.integer(0, now.height - height + 1), x = random.integer(0, now.width - width + 1);
    picture() = cropped(picture(), {x, y, width, height});
  }
  void apply(const HorizontalFlip &flip, Random random) {
    if (!random.chance(flip.probability))
      return;
    Picture &all = picture();
    for (int64_t y = 0; y < all.height; ++y) {
      uint8_t *left = all.row(y), *right = left + 3 * (all.width - 1);
      for (; left < right; left += 3, right -= 3)
        std::swap_ranges(left, left + 3, right);
    }
  }
  void apply(const ColorJitter &by, Random random) { jitter(picture(), by, random); }
  void apply(const Normalize &, Random) {}     // apply() does it with the last step
  void apply(const RandomErasing &, Random) {} // of values, not of pixels

  Picture &picture() {
    if (!decoded)
      decoded = from.whole();
    return *decoded;
  }

private:
  PictureSize size() const { return decoded ? PictureSize{decoded->width, decoded->height} : from.size(); }
  void take(const ScaledPart &part) {
    if (part.width > mostPixels / part.height)
      throw userError(fmt::format("{}: the transforms make a picture of {} x {} pixels, and it may have {}", name,
                                  part.width, part.height, mostPixels));
    decoded = decoded ? resized(*decoded, part.box, part.width, part.height, part.filter) : from.part(part);
  }

  const EncodedPicture &from;
  const std::string &name;
  std::optional<Picture> decoded;
};

void erase(const RandomErasing &erasing, Random random, const PictureShape &shape, float *values) {
  if (!random.chance(erasing.probability))
    return;
  const auto box = drawBox(erasing, {shape.width, shape.height}, random, false);
  for (int64_t c = 0; box && c < shape.channels; ++c)
    for (int64_t y = box->y; y < box->y + box->height; ++y)
      std::fill_n(values + (c * shape.height + y) * shape.width + box->x, box->width,
                  static_cast<float>(erasing.value));
}

} // namespace

Picture EncodedPicture::part(const ScaledPart &part) const {
  return resized(whole(), part.box, part.width, part.height, part.filter);
}

AppliedTransforms::AppliedTransforms(Transforms transforms, PictureShape shape)
    : list(std::move(transforms)), shape(shape) {
  if (const std::string problem = problemOf(list); !problem.empty())
    throw userError("data: " + problem);
  if (shape.channels != 1 && shape.channels != 3)
    throw userError(fmt::format("data: pictures have 3 channels, or 1 of grey; the model takes {}", shape.channels));
  for (size_t c = 0; c < 3; ++c)
    for (int byte = 0; byte < 256; ++byte)
      values[c][static_cast<size_t>(byte)] = static_cast<float>(byte) / 255.0F;
  for (const Transform &transform : list)
    if (const auto *normal = std::get_if<Normalize>(&transform))
      for (size_t c = 0; c < 3; ++c)
        for (float &value : values[c])
          value = (value - static_cast<float>(normal->mean[c])) / static_cast<float>(normal->deviation[c]);
}

double AppliedTransforms::level(size_t channel, float value) const {
  const std::array<float, 256> &of = values[shape.channels == 1 ? 0 : channel];
  return (value - of[0]) / (of[255] - of[0]);
}

Picture AppliedTransforms::last(const EncodedPicture &picture, const Random &random, const std::string &name) const {
  Pixels pixels(picture, name);
  for (size_t i = 0; i < list.size(); ++i)
    std::visit([&](const auto &transform) { pixels.apply(transform, random.stream(i)); }, list[i]);
  Picture last = std::move(pixels.picture());
  if (last.width != shape.width || last.height != shape.height)
    throw userError(fmt::format("{}: the model takes pictures of {} x {} pixels, {} it has {} x {}", name, shape.width,
                                shape.height, list.empty() ? "and" : "after the transforms", last.width, last.height));
  return last;
}

/// Calls write(channel, place, byte) for each value of a model's input.
static void forEachByte(const Picture &picture, const PictureShape &shape, auto write) {
  const auto count = static_cast<size_t>(shape.height * shape.width);
  const uint8_t *from = picture.pixels.data();
  if (shape.channels == 1)
    for (size_t i = 0; i < count; ++i)
      write(size_t{0}, i, greyOf(from + 3 * i));
  else
    for (size_t c = 0; c < 3; ++c)
      for (size_t i = 0; i < count; ++i)
        write(c, c * count + i, from[3 * i + c]);
}

void AppliedTransforms::apply(const EncodedPicture &picture, const Random &random, const std::string &name,
                              uint8_t *to) const {
  forEachByte(last(picture, random, name), shape, [&](size_t, size_t place, uint8_t byte) { to[place] = byte; });
}

void AppliedTransforms::apply(const EncodedPicture &picture, const Random &random, const std::string &name,
                              float *to) const {
  forEachByte(last(picture, random, name), shape,
              [&](size_t c, size_t place, uint8_t byte) { to[place] = values[c][byte]; });
  for (size_t i = 0; i < list.size(); ++i)
    if (const auto *erasing = std::get_if<RandomErasing>(&list[i]))
      erase(*erasing, random.stream(i), shape, to);
}

} // namespace cleave
