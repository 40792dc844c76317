// Transforms: what each makes of a picture, what they refuse, and that plans and checkpoints keep them.
#include "runtime/base/Error.h"
#include "runtime/base/TransformFields.h"
#include "runtime/checkpoint/TrainingJson.h"
#include "runtime/pictures/ApplyTransforms.h"
#include "runtime/plan/StoredTransforms.h"
#include "runtime/plan/plan_generated.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

using namespace cleave;
using Catch::Matchers::Contains;

namespace {

/// A picture whose pixel (x, y) is (x, y, 7).
class Coordinates final : public EncodedPicture {
public:
  Coordinates(int64_t width, int64_t height) : width(width), height(height) {}
  PictureSize size() const override { return {width, height}; }
  Picture whole() const override {
    Picture picture{width, height, {}};
    for (int64_t y = 0; y < height; ++y)
      for (int64_t x = 0; x < width; ++x)
        picture.pixels.insert(picture.pixels.end(), {static_cast<uint8_t>(x), static_cast<uint8_t>(y), 7});
    return picture;
  }

private:
  int64_t width, height;
};

/// The values [channels, height, width], times 255.
std::vector<float> applied(const Transforms &transforms, PictureShape shape, const EncodedPicture &picture,
                           int64_t sample = 0) {
  std::vector<float> values(static_cast<size_t>(shape.channels * shape.height * shape.width));
  AppliedTransforms(transforms, shape).apply(picture, Random(1, 1, sample), "a.png", values.data());
  for (float &value : values)
    value *= 255;
  return values;
}

} // namespace

TEST_CASE("crops take the pixels that torchvision takes") {
  const Coordinates picture(9, 7);
  const std::vector<float> middle = applied({CenterCrop{4}}, {3, 4, 4}, picture);
  CHECK(middle[0] == Approx(2));  // int(round((9 - 4) / 2)): half to even
  CHECK(middle[16] == Approx(2)); // int(round((7 - 4) / 2))
  const std::vector<float> wide = applied({CenterCrop{8, 9}}, {3, 8, 9}, picture);
  CHECK(wide[72 + 63] == Approx(0)); // the row below is black: (8 - 7 + 1) / 2
  CHECK(wide[72 + 54] == Approx(6));
  std::set<std::pair<float, float>> corners;
  for (int64_t sample = 0; sample < 200; ++sample) {
    const std::vector<float> part = applied({RandomCrop{5, 6}}, {3, 5, 6}, picture, sample);
    CHECK(part[29] == Approx(part[0] + 5));
    CHECK(part[30 + 29] == Approx(part[30] + 4));
    corners.insert({std::round(part[0]), std::round(part[30])});
  }
  CHECK(corners.size() == 4 * 3); // every place
  const std::vector<float> padded = applied({RandomCrop{11, 13, 2}}, {3, 11, 13}, picture);
  CHECK(padded[0] == 0);
  CHECK(padded[11 * 13 + 2 * 13 + 2] == Approx(0));
  CHECK(padded[11 * 13 + 8 * 13 + 2] == Approx(6));
  CHECK_THROWS_WITH(applied({RandomCrop{8}}, {3, 8, 8}, picture), Contains("a.png") && Contains("9 x 7"));
}

TEST_CASE("the shorter edge is resized, and sizes must be the model's") {
  CHECK_NOTHROW(applied({Resize{14}}, {3, 14, 18}, Coordinates(9, 7)));
  CHECK_NOTHROW(applied({Resize{14}}, {3, 18, 14}, Coordinates(7, 9)));
  CHECK_NOTHROW(applied({Resize{5, 20}}, {3, 5, 20}, Coordinates(7, 9)));
  CHECK_THROWS_WITH(applied({Resize{14}}, {3, 14, 14}, Coordinates(9, 7)),
                    Contains("a.png") && Contains("14 x 14") && Contains("18 x 14"));
  CHECK_THROWS_WITH(applied({}, {3, 14, 14}, Coordinates(9, 7)), Contains("9 x 7"));
}

TEST_CASE("a random resized crop has the areas and ratios that it is asked for") {
  const Coordinates picture(200, 100);
  double sum = 0;
  for (int64_t sample = 0; sample < 300; ++sample) {
    // Nearly a crop without a resize: the corners tell the box.
    const std::vector<float> part = applied({RandomResizedCrop{64, 0, 0.1, 0.3}}, {3, 64, 64}, picture, sample);
    const double width = (part[63] - part[0]) * 64 / 63, height = (part[4096 + 4032] - part[4096]) * 64 / 63;
    CHECK(width * height / 20000 > 0.08);
    CHECK(width * height / 20000 < 0.33);
    CHECK(width / height > 0.7);
    CHECK(width / height < 1.45);
    sum += width * height / 20000;
  }
  CHECK(sum / 300 == Approx(0.2).margin(0.02));
  // None fits: the middle, with the nearest ratio.
  const std::vector<float> thin = applied({RandomResizedCrop{10, 0, 1, 1}}, {3, 10, 10}, Coordinates(200, 10));
  CHECK(thin[0] == Approx(94).margin(1)); // 13 of 200 pixels
}

TEST_CASE("flips, grey and normalisation") {
  const Coordinates picture(4, 2);
  CHECK(applied({HorizontalFlip{1}}, {3, 2, 4}, picture)[0] == Approx(3));
  CHECK(applied({HorizontalFlip{0}}, {3, 2, 4}, picture)[0] == Approx(0));
  int flips = 0;
  for (int64_t sample = 0; sample < 400; ++sample)
    flips += applied({HorizontalFlip{}}, {3, 2, 4}, picture, sample)[0] > 1;
  CHECK(flips > 160);
  CHECK(flips < 240);
  CHECK(applied({}, {1, 2, 4}, picture)[7] == Approx(double((19595 * 3 + 38470 * 1 + 7471 * 7 + 0x8000) >> 16)));
  const std::vector<float> normal = applied({Normalize{{0.5, 0, 0}, {0.25, 1, 1}}}, {3, 2, 4}, picture);
  CHECK(normal[3] == Approx((3 - 127.5) / 0.25));
  CHECK(normal[8 + 4] == Approx(1));
  const AppliedTransforms reversed({Normalize{}}, {3, 2, 4});
  CHECK(reversed.level(1, (0.3F - 0.456F) / 0.224F) == Approx(0.3));
}

TEST_CASE("erased boxes have the area that is asked for, and the value") {
  int erased = 0;
  for (int64_t sample = 0; sample < 200; ++sample) {
    const std::vector<float> values =
        applied({RandomErasing{0.5, 0.1, 0.2, 0.5, 2, 9}}, {3, 40, 40}, Coordinates(40, 40), sample);
    const auto count = std::ranges::count(values, 9 * 255.0F);
    erased += count > 0;
    if (count) {
      CHECK(count % 3 == 0);
      CHECK(count / 3 >= 0.08 * 1600);
      CHECK(count / 3 <= 0.23 * 1600);
    }
  }
  CHECK(erased > 70);
  CHECK(erased < 130);
}

TEST_CASE("random numbers of a transform do not depend on what another draws") {
  const Coordinates picture(30, 30);
  for (int64_t sample = 0; sample < 20; ++sample) {
    const auto plain = applied({HorizontalFlip{0}, RandomCrop{20}}, {3, 20, 20}, picture, sample),
               jittered = applied({ColorJitter{}, RandomCrop{20}}, {3, 20, 20}, picture, sample);
    CHECK(plain == jittered); // a jitter of nothing draws, too
  }
}

TEST_CASE("transforms that cannot be are refused with the number and its limits") {
  const auto problem = [](const Transforms &transforms) { return problemOf(transforms); };
  CHECK(problem(imageNetTraining(224)).empty());
  CHECK(problem(imageNetEvaluation(224)).empty());
  CHECK_THAT(problem({Resize{0}}), Contains("Resize: size must lie in [1, 65535], found 0"));
  CHECK_THAT(problem({HorizontalFlip{1.5}}), Contains("probability must lie in [0, 1], found 1.5"));
  CHECK_THAT(problem({RandomResizedCrop{8, 0, 0.5, 0.2}}), Contains("must not be above the most"));
  CHECK_THAT(problem({ColorJitter{0, 0, 0, 0.7}}), Contains("hue"));
  CHECK_THAT(problem({ColorJitter{std::nan("")}}), Contains("brightness"));
  CHECK_THAT(problem({Normalize{}, HorizontalFlip{}}), Contains("only RandomErasing may follow Normalize"));
  CHECK_THROWS_WITH(AppliedTransforms({}, {2, 8, 8}), Contains("3 channels, or 1 of grey; the model takes 2"));
}

TEST_CASE("plans and checkpoints keep transforms") {
  const Transforms all{Resize{40, 50, Resampling::Bicubic}, CenterCrop{30},         RandomCrop{20, 21, 2},
                       RandomResizedCrop{16, 17, 0.1, 0.9}, HorizontalFlip{0.25},   ColorJitter{0.1, 0.2, 0.3, 0.4},
                       Normalize{{0.1, 0.2, 0.3}},          RandomErasing{0.1, 0.2}};
  const auto texts = [](const Transforms &transforms) {
    std::vector<std::string> list;
    for (const Transform &transform : transforms)
      list.push_back(describe(transform));
    return list;
  };
  CHECK(texts(transformsOf(storedTransforms(all))) == texts(all));
  plan::DataT data;
  data.kind = plan::DataKind::Pictures;
  data.train = storedTransforms(all);
  data.eval = storedTransforms(imageNetEvaluation(224));
  data.class_names = {"cat", "dog\"s"};
  const plan::DataT back = parseData(dataJson(data));
  CHECK(back.kind == data.kind);
  CHECK(back.class_names == data.class_names);
  CHECK(texts(transformsOf(back.train)) == texts(all));
  CHECK(texts(transformsOf(back.eval)) == texts(imageNetEvaluation(224)));

  StoredTransforms altered = storedTransforms({HorizontalFlip{}});
  altered[0]->numbers = {2};
  CHECK_THROWS_WITH(transformsOf(altered), Contains("HorizontalFlip"));
  altered[0]->numbers = {0.5, 0.5};
  CHECK_THROWS_WITH(transformsOf(altered), Contains("HorizontalFlip"));
  altered[0]->numbers = {};
  CHECK_THROWS_WITH(transformsOf(altered), Contains("HorizontalFlip"));
  CHECK_THROWS_WITH(parseData(R"({"kind":"pictures","train":[{"kind":"Turn"}]})"), Contains("Turn"));
  CHECK_THROWS_WITH(parseData(R"({"kind":"pictures","train":[{"kind":"HorizontalFlip"}]})"), Contains("probability"));
}
