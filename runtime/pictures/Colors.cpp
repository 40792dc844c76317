// ColorJitter with the arithmetic of Pillow: ImageEnhance for brightness, contrast and saturation (Blend.c), and
// conversions to HSV and back of 8 bits (Convert.c) for the hue.
#include "runtime/pictures/Colors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

namespace cleave {
namespace {

uint8_t limited(int value) { return static_cast<uint8_t>(std::clamp(value, 0, 255)); }

/// from + factor * (to - from), cut off to 8 bits.
uint8_t blend(int from, int to, float factor) {
  const float value = static_cast<float>(from) + factor * static_cast<float>(to - from);
  return value <= 0 ? 0 : value >= 255 ? 255 : static_cast<uint8_t>(value);
}

void eachPixel(Picture &picture, auto change) {
  for (uint8_t *pixel = picture.pixels.data(), *end = pixel + picture.pixels.size(); pixel != end; pixel += 3)
    change(pixel);
}

/// Hue, saturation and value in [0, 255].
std::array<uint8_t, 3> toHsv(const uint8_t *rgb) {
  const auto [least, most] = std::minmax({rgb[0], rgb[1], rgb[2]});
  if (least == most)
    return {0, 0, most};
  const auto range = static_cast<float>(most - least);
  const auto from = [&](int c) { return static_cast<float>(most - rgb[c]) / range; };
  const float red = from(0), green = from(1), blue = from(2);
  float hue = rgb[0] == most   ? blue - green
              : rgb[1] == most ? static_cast<float>(2.0 + red - blue)
                               : static_cast<float>(4.0 + green - red);
  hue = static_cast<float>(std::fmod(hue / 6.0 + 1.0, 1.0));
  return {limited(static_cast<int>(hue * 255.0)), limited(static_cast<int>(range / static_cast<float>(most) * 255.0)),
          most};
}

void fromHsv(const std::array<uint8_t, 3> &hsv, uint8_t *rgb) {
  const auto [hue, saturation, value] = hsv;
  if (saturation == 0) {
    std::fill_n(rgb, 3, value);
    return;
  }
  const float angle = static_cast<float>(hue) * 6.0F / 255.0F, part = static_cast<float>(saturation) / 255.0F;
  const int sector = static_cast<int>(std::floor(angle));
  const float within = angle - static_cast<float>(sector), v = value;
  const auto shade = [&](float less) { return limited(static_cast<int>(std::lround(v * (1.0 - less)))); };
  const uint8_t p = shade(part), q = shade(part * within), t = shade(static_cast<float>(part * (1.0 - within)));
  const std::array<std::array<uint8_t, 3>, 6> sectors{
      {{value, t, p}, {q, value, p}, {p, value, t}, {p, q, value}, {t, p, value}, {value, p, q}}};
  std::copy_n(sectors[static_cast<size_t>(sector % 6)].begin(), 3, rgb);
}

} // namespace

void changeBrightness(Picture &picture, float factor) {
  for (uint8_t &value : picture.pixels)
    value = blend(0, value, factor);
}

void changeContrast(Picture &picture, float factor) {
  int64_t sum = 0;
  eachPixel(picture, [&](const uint8_t *pixel) { sum += greyOf(pixel); });
  const auto count = static_cast<double>(picture.width * picture.height);
  const int mean = static_cast<int>(static_cast<double>(sum) / count + 0.5);
  for (uint8_t &value : picture.pixels)
    value = blend(mean, value, factor);
}

void changeSaturation(Picture &picture, float factor) {
  eachPixel(picture, [&](uint8_t *pixel) {
    const int grey = greyOf(pixel);
    for (int c = 0; c < 3; ++c)
      pixel[c] = blend(grey, pixel[c], factor);
  });
}

void turnHue(Picture &picture, double part) {
  const auto by = static_cast<uint8_t>(static_cast<int>(part * 255));
  eachPixel(picture, [&](uint8_t *pixel) {
    auto hsv = toHsv(pixel);
    hsv[0] = static_cast<uint8_t>(hsv[0] + by);
    fromHsv(hsv, pixel);
  });
}

void jitter(Picture &picture, const ColorJitter &by, Random random) {
  const auto factor = [&](double range) {
    return static_cast<float>(random.uniform(std::max(0.0, 1 - range), 1 + range));
  };
  // All numbers are drawn, so that none depends on which of the changes are wanted.
  const float brightness = factor(by.brightness), contrast = factor(by.contrast), saturation = factor(by.saturation);
  const double hue = random.uniform(-by.hue, by.hue);
  std::array<int, 4> order;
  std::iota(order.begin(), order.end(), 0);
  for (int i = 3; i > 0; --i)
    std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(random.integer(0, i + 1))]);
  for (const int change : order) {
    if (change == 0 && by.brightness > 0)
      changeBrightness(picture, brightness);
    if (change == 1 && by.contrast > 0)
      changeContrast(picture, contrast);
    if (change == 2 && by.saturation > 0)
      changeSaturation(picture, saturation);
    if (change == 3 && by.hue > 0)
      turnHue(picture, hue);
  }
}

} // namespace cleave
