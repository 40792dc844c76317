// Mixup and CutMix: images and labels are mixed alike, training alone mixes, and a split changes nothing.
#include "frontend/trace/Mix.h"
#include "tests/unit/frontend/Support.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <unistd.h>

using namespace cleave;
using namespace cleave::test;

namespace {

/// Images that are everywhere as large as their label.
struct Flat : Dataset {
  std::vector<DataField> list{{"image", FieldType::F32, {1, 6, 8}}, {"label", FieldType::I32, {}, 5}};
  const std::vector<DataField> &fields() const override { return list; }
  int64_t samples(Split) const override { return 48; }
  void read(Split, int64_t index, size_t field, std::byte *to) const override {
    const auto label = static_cast<int32_t>(index * 7 % 5);
    if (field == 1)
      std::memcpy(to, &label, sizeof label);
    for (int64_t i = 0; field == 0 && i < 48; ++i)
      reinterpret_cast<float *>(to)[i] = static_cast<float>(label);
  }
};

/// The mean of an image: with mixed images, the mean of the two labels by their parts.
struct MeanModel : Module {
  Parameter scale{*this, "scale", {1}, init::ones()};
  Tensor forward(Tensor image) { return mean(flatten(image, 1), {1}) * scale; }
};

Tensor expected(Tensor labels) { // of labels, or of their probabilities
  return labels.dtype() == DType::I32 ? cast(labels, DType::F32) : sum(labels * arange(0, 5), {-1});
}
Loss difference(Tensor means, Tensor labels) {
  return Loss{sum(abs(means - expected(labels))), full({}, static_cast<double>(means.size(0))), {}, means.size(0)};
}
/// 1 for labels that are not mixed, at least 1/2 for two of them.
Loss purity(Tensor means, Tensor labels) {
  const Tensor largest = labels.dtype() == DType::I32 ? full({means.size(0)}, 1) : max(labels, {-1});
  return Loss{sum(largest) + 0.0 * sum(means), full({}, static_cast<double>(means.size(0))), {}, means.size(0)};
}

std::vector<nlohmann::json> trained(const TrainConfig &config, const RunOptions &given) {
  const std::string file =
      (std::filesystem::temp_directory_path() / ("cleave-mix-" + std::to_string(getpid()))).string();
  std::filesystem::remove(file);
  MeanModel model;
  RunOptions options = given;
  options.metrics = file, options.quiet = true, options.epochs = 1;
  Trainer(model, config).train(options);
  std::vector<nlohmann::json> records;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);)
    records.push_back(nlohmann::json::parse(line));
  std::filesystem::remove(file);
  return records;
}

} // namespace

TEST_CASE("images and labels are mixed alike, in training alone") {
  const auto mix = GENERATE(Mix{.mixup = 1}, Mix{.mixup = 0.2, .group = 4}, Mix{.cutMix = 1},
                            Mix{.mixup = 0.5, .cutMix = 1, .group = 3});
  CAPTURE(mix.mixup, mix.cutMix, mix.group);
  TrainConfig config{
      .data = std::make_shared<Flat>(), .loss = difference, .optimizer = Sgd{.lr = 0}, .mix = mix, .batch = 24};
  for (const auto &record : trained(config, {}))
    if (record.contains("step"))
      CHECK(record["loss"].get<double>() == Approx(0).margin(1e-5));
    else if (record.contains("eval_loss"))
      CHECK(record["eval_loss"].get<double>() == Approx(0).margin(1e-6));
  config.loss = purity;
  const auto whole = trained(config, {});
  double least = 1;
  for (const auto &record : whole)
    if (record.contains("step"))
      least = std::min(least, record["loss"].get<double>());
    else if (record.contains("eval_loss"))
      CHECK(record["eval_loss"] == 1);
  CHECK(least < 0.97);
  CHECK(least > 0.5);
  for (const auto &[mesh, microbatches] : {std::pair("dp=2", 1), std::pair("dp=8", 1), std::pair("dp=2", 2)}) {
    const auto split = trained(config, {.mesh = mesh, .microbatches = microbatches});
    REQUIRE(split.size() == whole.size());
    for (size_t i = 1; i < whole.size(); ++i)
      if (whole[i].contains("step"))
        CHECK(split[i]["loss"].get<double>() == Approx(whole[i]["loss"].get<double>()).epsilon(1e-6));
  }
}

TEST_CASE("quantiles of Beta(alpha, alpha)") {
  const std::vector<float> uniform = betaQuantiles(1, 8), square = betaQuantiles(2, 8), arcsine = betaQuantiles(0.5, 8);
  for (size_t i = 0; i <= 8; ++i) {
    const double part = static_cast<double>(i) / 8, x = square[i];
    CHECK(uniform[i] == Approx(part).margin(1e-6));
    CHECK(3 * x * x - 2 * x * x * x == Approx(part).margin(1e-5));
    CHECK(arcsine[i] == Approx(std::pow(std::sin(part * 1.5707963267948966), 2)).margin(1e-5));
  }
  for (const double alpha : {0.05, 0.2, 3.0, 50.0}) {
    const std::vector<float> values = betaQuantiles(alpha, 1024);
    CHECK(values.front() == 0);
    CHECK(values.back() == 1);
    CHECK(values[512] == Approx(0.5));
    for (size_t i = 0; i < 1024; ++i)
      CHECK(values[i] <= values[i + 1]);
  }
}

TEST_CASE("mixes that cannot be are refused") {
  const auto refused = [](Mix mix, const std::string &why) {
    const TrainConfig config{.data = std::make_shared<Flat>(), .loss = difference, .mix = mix, .batch = 24};
    MeanModel model;
    CHECK_THAT(mistake([&] { traced(model, config, 12); }), Catch::Matchers::Contains(why));
  };
  refused({.mixup = 1, .group = 5}, "12 samples of a microbatch cannot be cut into groups of 5");
  refused({.mixup = 1, .group = 1}, "at least 2");
  refused({.mixup = 1, .cutMix = -1}, "alpha must lie in [0, 1000], found -1");
}
