// Pictures of every kind against Pillow's pixels (tests/parity/pictures.py).
#include "runtime/base/Error.h"
#include "runtime/pictures/Colors.h"
#include "runtime/pictures/Picture.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <random>

using namespace cleave;
using Catch::Matchers::Contains;

namespace {

const std::string folder = CLEAVE_PICTURES;

std::vector<uint8_t> bytesOf(const std::string &name) {
  std::ifstream file(folder + "/" + name, std::ios::binary);
  REQUIRE(file);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The largest difference of two pixels.
int apart(const std::vector<uint8_t> &a, const std::vector<uint8_t> &b) {
  REQUIRE(a.size() == b.size());
  int most = 0;
  for (size_t i = 0; i < a.size(); ++i)
    most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

} // namespace

TEST_CASE("pictures of every kind are decoded as by Pillow") {
  size_t count = 0;
  for (const auto &entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if ((!name.ends_with(".jpg") && !name.ends_with(".png")) || name.starts_with("large"))
      continue;
    CAPTURE(name);
    const std::vector<uint8_t> file = bytesOf(name);
    const PictureSize size = pictureSize(file, name);
    CHECK(size.width == 37);
    CHECK(size.height == 23);
    const Picture picture = decodePicture(file, name);
    CHECK((picture.width == size.width && picture.height == size.height));
    CHECK(apart(picture.pixels, bytesOf(name + ".rgb")) <= (name.ends_with(".jpg") ? 1 : 0)); // another libjpeg rounds
    ++count;
  }
  CHECK(count == 14);
}

TEST_CASE("pictures are resized as by Pillow, bit for bit") {
  const Picture picture = decodePicture(bytesOf("plain.png"), "plain.png");
  const auto [width, height] =
      GENERATE(std::pair(11, 7), std::pair(50, 31), std::pair(37, 5), std::pair(9, 23), std::pair(1, 1),
               std::pair(74, 46), std::pair(29, 7), std::pair(30, 7), std::pair(50, 7)); // the last two: columns first
  for (const auto &[word, filter] :
       {std::pair("bilinear", Resampling::Bilinear), std::pair("bicubic", Resampling::Bicubic)}) {
    CAPTURE(width, height, word);
    const Picture made = resized(picture, {0, 0, picture.width, picture.height}, width, height, filter);
    CHECK((made.width == width && made.height == height));
    CHECK(made.pixels == bytesOf(fmt::format("plain-{}x{}-{}.rgb", width, height, word)));
  }
}

TEST_CASE("colours are changed as by Pillow, bit for bit") {
  const auto changed = [](auto change, auto by) {
    Picture picture = decodePicture(bytesOf("plain.png"), "plain.png");
    change(picture, by);
    return picture.pixels;
  };
  for (const float factor : {0.4F, 1.7F}) {
    CAPTURE(factor);
    CHECK(changed(changeBrightness, factor) == bytesOf(fmt::format("plain-brightness-{}.rgb", factor)));
    CHECK(changed(changeContrast, factor) == bytesOf(fmt::format("plain-contrast-{}.rgb", factor)));
    CHECK(changed(changeSaturation, factor) == bytesOf(fmt::format("plain-saturation-{}.rgb", factor)));
  }
  for (const double part : {0.1, -0.3})
    CHECK(changed(turnHue, part) == bytesOf(fmt::format("plain-hue-{}.rgb", part)));
}

TEST_CASE("a picture that is written as PNG is read again") {
  const Picture picture = decodePicture(bytesOf("plain.png"), "plain.png");
  CHECK(decodePicture(encodePng(picture), "again").pixels == picture.pixels);
}

TEST_CASE("a box is resized as the picture that is cut out") {
  const Picture picture = decodePicture(bytesOf("plain.png"), "plain.png");
  const PictureBox box{5, 3, 20, 17};
  const Picture cut = cropped(picture, box);
  CHECK((cut.width == 20 && cut.height == 17));
  CHECK(cut.row(0)[0] == picture.row(3)[3 * 5]);
  CHECK(resized(picture, box, 8, 8, Resampling::Bilinear).pixels ==
        resized(cut, {0, 0, 20, 17}, 8, 8, Resampling::Bilinear).pixels);
  CHECK(resized(picture, box, 20, 17, Resampling::Bicubic).pixels == cut.pixels);
}

TEST_CASE("parts of a picture are those of the whole picture") {
  std::mt19937 random(1);
  const auto below = [&](int64_t most) { return static_cast<int64_t>(random() % static_cast<uint32_t>(most)); };
  for (const std::string name : {"large.jpg", "large-progressive.jpg", "large-cmyk.jpg", "plain.png", "few scans"}) {
    std::vector<uint8_t> file = bytesOf(name == "few scans" ? "large-progressive.jpg" : name);
    if (name == "few scans") { // what is not known is smoothed
      const std::array<uint8_t, 2> scan{0xff, 0xda};
      const auto first = std::search(file.begin(), file.end(), scan.begin(), scan.end());
      file.erase(std::search(first + 2, file.end(), scan.begin(), scan.end()), file.end());
      file.insert(file.end(), {0xff, 0xd9});
    }
    const Picture whole = decodePicture(file, name);
    double worst = 100;
    for (int i = 0; i < 60; ++i) {
      PictureBox box{below(whole.width), below(whole.height)};
      box.width = 1 + below(whole.width - box.x), box.height = 1 + below(whole.height - box.y);
      if (i % 10 == 0)
        box = {0, 0, whole.width, whole.height};
      const ScaledPart part{box, 4 + below(30), 4 + below(30), i % 2 ? Resampling::Bilinear : Resampling::Bicubic};
      const Picture wanted = resized(whole, box, part.width, part.height, part.filter);
      CAPTURE(name, box.x, box.y, box.width, box.height, part.width, part.height);
      CHECK(decodePart(file, name, part, DecodeMode::Exact).pixels == wanted.pixels);
      const Picture fast = decodePart(file, name, part, DecodeMode::Fast);
      REQUIRE(fast.pixels.size() == wanted.pixels.size());
      double error = 0;
      for (size_t p = 0; p < wanted.pixels.size(); ++p)
        error += std::pow(fast.pixels[p] - wanted.pixels[p], 2);
      const double psnr =
          10 * std::log10(255 * 255 * static_cast<double>(wanted.pixels.size()) / std::max(error, 1e-9));
      worst = std::min(worst, psnr);
    }
    CAPTURE(name, worst);
    CHECK(worst >= 35); // dB
  }
}

TEST_CASE("damaged pictures are refused with the file and what is wrong") {
  const auto refused = [](std::vector<uint8_t> file, const std::string &why) {
    CHECK_THROWS_WITH(decodePicture(file, "a/b.jpg"), Contains("a/b.jpg: ") && Contains(why));
  };
  refused({}, "is empty");
  refused({'t', 'e', 'x', 't'}, "is neither a JPEG nor a PNG");
  for (const std::string name : {"plain.jpg", "progressive.jpg", "cmyk.jpg", "plain.png"}) {
    CAPTURE(name);
    std::vector<uint8_t> file = bytesOf(name);
    file.resize(file.size() * 2 / 3);
    refused(file, "the file ends before the picture does");
    file.resize(9);
    refused(file, "the file ends before the picture does");
  }
  std::vector<uint8_t> huge = bytesOf("plain.png");
  huge[16] = huge[20] = 0x7f; // width and height
  refused(huge, "damaged PNG");
  std::vector<uint8_t> wide = bytesOf("plain.jpg");
  for (size_t i = 0; i + 8 < wide.size(); ++i)
    if (wide[i] == 0xff && wide[i + 1] == 0xc0) // the header of the frame: height, width
      wide[i + 5] = wide[i + 7] = 0xf0;
  refused(wide, "a picture has 1 to 89478485 pixels, found 61477 x 61463");
  std::vector<uint8_t> changed = bytesOf("plain.png");
  changed[60] ^= 0x55;
  refused(changed, "damaged PNG");
}
