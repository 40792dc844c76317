// Training without the command line, on a user-defined data set.
#include "runtime/checkpoint/Manifest.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/plan_generated.h"
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

/// A data set of the plane y = 2 x0 - x1 + 0.5 on a grid.
struct Plane : Dataset {
  std::vector<DataField> list{{"x", FieldType::F32, {2}}, {"target", FieldType::F32, {1}}};
  const std::vector<DataField> &fields() const override { return list; }
  int64_t samples(Split split) const override { return split == Split::Train ? 64 : 16; }
  void read(Split split, int64_t index, size_t field, std::byte *to) const override {
    const float x[2] = {static_cast<float>(index % 8) / 8, static_cast<float>(index / 8) / 8};
    const float y = 2 * x[0] - x[1] + 0.5f;
    field == 0 ? std::memcpy(to, x, sizeof x) : std::memcpy(to, &y, sizeof y);
  }
};

struct LinearModel : Module {
  Linear fc{*this, "fc", 2, 1};
  Tensor forward(Tensor x) { return fc(x); }
};

struct Folder {
  std::string path = std::filesystem::temp_directory_path() / ("cleave-trainer-" + std::to_string(getpid()));
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
};

std::vector<double> lossesOf(const std::string &file) {
  std::vector<double> losses;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);)
    if (const auto record = nlohmann::json::parse(line); record.contains("step"))
      losses.push_back(record["loss"]);
  return losses;
}

TrainConfig planeConfig() {
  return {
      .data = std::make_shared<Plane>(), .loss = mseLoss, .optimizer = Sgd{.lr = 0.3, .momentum = 0.5}, .batch = 16};
}

} // namespace

TEST_CASE("a trainer learns a plane, on one rank and on two") {
  Folder folder;
  LinearModel model;
  Trainer trainer(model, planeConfig());
  const std::string one = folder.path + "/one.jsonl", two = folder.path + "/two.jsonl",
                    checkpoint = folder.path + "/ck";
  trainer.train({.epochs = 60, .metrics = one, .checkpoint = checkpoint, .quiet = true});
  trainer.train({.mesh = "dp=2", .epochs = 60, .metrics = two, .quiet = true});
  const auto losses = lossesOf(one), split = lossesOf(two);
  REQUIRE(losses.size() == 240);
  REQUIRE(split.size() == 240);
  CHECK(losses.back() < 1e-4);
  CHECK(split[20] == Approx(losses[20]).epsilon(1e-4));
  const Evaluation evaluation = trainer.evaluate({.checkpoint = checkpoint});
  CHECK(evaluation.samples == 16);
  CHECK(evaluation.loss < 1e-3);
}

TEST_CASE("a trainer reads the checkpoint of a program, and what it writes then is the program's") {
  Folder folder;
  const std::string checkpoint = folder.path + "/ck";
  LinearModel model;
  Trainer(makeModel(model, "points", R"({"width": 3})"), planeConfig())
      .train({.steps = 2, .checkpoint = checkpoint, .quiet = true});
  Trainer trainer{model, planeConfig()};
  CHECK(std::isfinite(trainer.predictor({.checkpoint = checkpoint})(std::vector<float>{0.5f, 1})[0]));
  CHECK(trainer.evaluate({.checkpoint = checkpoint}).samples == 16);
  Trainer{model, planeConfig()}.train({.steps = 4, .checkpoint = checkpoint, .resume = true, .quiet = true});
  const CheckpointInfo info = readCheckpointInfo(checkpoint);
  CHECK(info.step == 4);
  CHECK(info.model == "points");
  CHECK(has(info.options, "3"));
  Trainer other(makeModel(model, "lines"), planeConfig());
  CHECK(has(mistake([&] { other.evaluate({.checkpoint = checkpoint}); }),
            "is of model points, but this program is lines"));
}

TEST_CASE("evaluations and predictions use averages of the parameters") {
  struct Zeros : Plane { // the model's output is its bias, and the loss its square distance from 1
    void read(Split, int64_t, size_t field, std::byte *to) const override {
      const float x[2] = {0, 0}, y = 1;
      field == 0 ? std::memcpy(to, x, sizeof x) : std::memcpy(to, &y, sizeof y);
    }
  };
  Folder folder;
  LinearModel model;
  TrainConfig config = planeConfig();
  config.data = std::make_shared<Zeros>();
  config.optimizer = Sgd{.lr = 0.1};
  const auto biasOf = [](double loss) { return 1 - std::sqrt(loss); };
  Trainer(model, config).train({.steps = 5, .metrics = folder.path + "/m.jsonl", .quiet = true});
  const std::vector<double> losses = lossesOf(folder.path + "/m.jsonl"); // before each step
  double average = biasOf(losses[1]);
  for (size_t step = 2; step <= 4; ++step)
    average += 0.25 * (biasOf(losses[step]) - average);
  CHECK(std::abs(average - biasOf(losses[4])) > 0.01);
  config.ema = 0.75;
  Trainer trainer(model, config);
  for (const auto &[mesh, zero] : {std::pair("dp=1", 0), {"dp=2", 0}, {"dp=2", 1}, {"dp=2", 3}}) {
    INFO(mesh << " zero " << zero);
    const std::string checkpoint = folder.path + "/" + mesh + std::to_string(zero);
    trainer.train({.mesh = mesh, .zero = zero, .steps = 4, .checkpoint = checkpoint, .quiet = true});
    CHECK(biasOf(trainer.evaluate({.checkpoint = checkpoint}).loss) == Approx(average).epsilon(1e-5));
    CHECK(trainer.predictor({.checkpoint = checkpoint})(Zeros(), Split::Eval)[0] == Approx(average).epsilon(1e-5));
    CHECK(trainer.check({.mesh = mesh, .steps = 3}).difference == "");
  }
  // A training without averages goes on with them: they begin with its parameters.
  const std::string plain = folder.path + "/plain";
  Trainer(model,
          [&] {
            TrainConfig without = config;
            without.ema = 0;
            return without;
          }())
      .train({.steps = 4, .checkpoint = plain, .quiet = true});
  CHECK(biasOf(trainer.evaluate({.checkpoint = plain}).loss) == Approx(biasOf(losses[4])).epsilon(1e-5));
  config.ema = 1;
  CHECK_THROWS_WITH(Trainer(model, config).train({.steps = 1, .quiet = true}),
                    Catch::Contains("ema is 1, must be a number in [0, 1)"));
  config.ema = 0.5;
  CHECK_THROWS_WITH(Trainer(model, config).train({.steps = 1, .precision = "fp16", .optLevel = "O3", .quiet = true}),
                    Catch::Contains("ema: averages need parameters in fp32"));
}

TEST_CASE("gradients are clipped alike where every parameter is split") {
  struct Wide : Module {
    Linear fc{*this, "fc", 2, 8};
    Tensor forward(Tensor x) { return sum(tanh(fc(x)), {-1}, true); }
  } model;
  TrainConfig config = planeConfig();
  config.clipNorm = 0.01;
  Trainer trainer(model, config);
  for (const char *mesh : {"tp=2", "tp=4", "dp=2,tp=2"}) {
    INFO(mesh);
    CHECK(trainer.check({.mesh = mesh, .microbatches = 2, .steps = 3}).difference == "");
  }
}

TEST_CASE("bytes reach the model, under every split") {
  struct Bytes : Dataset {
    std::vector<DataField> list{{"image", FieldType::U8, {2, 4, 6}}, {"target", FieldType::F32, {1}}};
    const std::vector<DataField> &fields() const override { return list; }
    int64_t samples(Split) const override { return 16; }
    void read(Split, int64_t index, size_t field, std::byte *to) const override {
      const auto y = static_cast<float>(index % 3);
      for (int i = 0; field == 0 && i < 48; ++i)
        to[i] = static_cast<std::byte>(255 - 5 * i * (index + 1) % 251);
      if (field == 1)
        std::memcpy(to, &y, sizeof y);
    }
  };
  struct Model : Module {
    Conv2d conv{*this, "conv", 2, 3, {.kernel = 3}};
    Linear fc{*this, "fc", 3 * 2 * 4 + 48, 1};
    Tensor forward(Tensor image) {
      // Moved as bytes, and added modulo 256.
      Tensor turned = flatten(flip(transpose(image, 2, 3), {1}), 1), twice = turned + turned;
      Tensor numbers = cast(image, DType::F32) / 255;
      return fc(concat({flatten(relu(conv(numbers)), 1), cast(twice, DType::F32) / 255}, 1));
    }
  } model;
  Folder folder;
  const std::string checkpoint = folder.path + "/ck";
  Trainer trainer(model,
                  {.data = std::make_shared<Bytes>(), .loss = mseLoss, .optimizer = Sgd{.lr = 0.01}, .batch = 8});
  for (const char *precision : {"fp32", "bf16"})
    for (const char *mesh : {"dp=1", "dp=2", "tp=2", "pp=2", "dp=2,tp=2"}) {
      INFO(mesh << " " << precision);
      CHECK(trainer.check({.mesh = mesh, .microbatches = 2, .steps = 2, .precision = precision}).difference == "");
    }
  trainer.train({.steps = 2, .checkpoint = checkpoint, .quiet = true});
  Predictor predictor = trainer.predictor({.checkpoint = checkpoint});
  std::vector<uint8_t> given(16 * 48);
  for (int64_t i = 0; i < 16; ++i)
    Bytes().read(Split::Eval, i, 0, reinterpret_cast<std::byte *>(given.data()) + 48 * i);
  CHECK(predictor(std::span<const uint8_t>(given)) == predictor(Bytes(), Split::Eval));
  const std::vector<float> numbers(48);
  CHECK_THROWS_WITH(predictor(std::span<const float>(numbers)), Catch::Contains("field image is u8, found f32"));
}

TEST_CASE("pictures are normalised by the model, unless values change after that") {
  for (const bool erases : {false, true}) {
    Pictures pictures{
        .height = 8, .width = 8, .classes = 3, .train = {RandomCrop{8}, Normalize{}}, .eval = {Normalize{}}};
    if (erases)
      pictures.train.push_back(RandomErasing{});
    CHECK((fieldsOf(pictures)[0].dtype == FieldType::U8) == !erases);
    CHECK(fieldsOf(pictures)[0].bytes() == (erases ? 768 : 192));
  }
}

TEST_CASE("evaluation counts every sample once, whatever the loss, the batch and the split") {
  struct Model : Module {
    Linear fc{*this, "fc", 2, 1};
    Tensor forward(Tensor x) { return fc(x); }
  };
  struct Odd : Plane { // a field without a special name, and a sample count that few batch sizes divide
    Odd() { list[1].name = "y"; }
    int64_t samples(Split split) const override { return split == Split::Train ? 60 : 23; }
  };
  const LossFunction absolute = [](Tensor x, Tensor y) {
    return Loss{sum(abs(x - y)), full({}, static_cast<double>(y.elements())), {}, y.elements()};
  };
  const LossFunction ofMeans = [](Tensor x, Tensor y) { return Loss{mean((x - y) * (x - y)), full({}, 1), {}, 1}; };
  Folder folder;
  const std::string checkpoint = folder.path + "/ck";
  for (const LossFunction &loss : {LossFunction(mseLoss), absolute, ofMeans}) {
    Model model;
    Trainer trainer(model, {.data = std::make_shared<Odd>(), .loss = loss, .optimizer = Sgd{.lr = 1e-3}, .batch = 12});
    trainer.train({.steps = 2, .checkpoint = checkpoint, .quiet = true});
    const double expected = trainer.evaluate({.microbatches = 1, .batch = 1, .checkpoint = checkpoint}).loss;
    CHECK(expected > 0.01);
    const auto agrees = [&](const std::string &mesh, int64_t microbatches, int64_t batch) {
      const Evaluation found =
          trainer.evaluate({.mesh = mesh, .microbatches = microbatches, .batch = batch, .checkpoint = checkpoint});
      INFO(mesh << " batch " << batch << " microbatches " << microbatches);
      CHECK(found.loss == Approx(expected).epsilon(1e-5));
      CHECK(found.samples == 23);
    };
    agrees("dp=1", 1, 10);
    agrees("dp=1", 2, 32);
    agrees("dp=2", 3, 30);
    std::filesystem::remove_all(checkpoint);
  }
}

TEST_CASE("a frozen parameter keeps its value, plan and graph agree") {
  LinearModel model;
  model.fc.weight.requiresGrad(false);
  TrainConfig config = planeConfig();
  config.optimizer = AdamW{.lr = 0.1};
  config.clipNorm = 0.01;
  config.learningRate = CosineLr{.min = 0.001, .warmup = 2};
  Trainer trainer(model, config);
  const CheckResult result = trainer.check({.mesh = "dp=2", .microbatches = 2, .steps = 3});
  CHECK(result.difference == "");
  CHECK(result.tensors > 3);
}

namespace {

/// Targets of about 1e5 whose sum is 0, for equal inputs: the terms of the gradients are 1e6 times their sums.
struct Cancelling : Plane {
  void read(Split, int64_t index, size_t field, std::byte *to) const override {
    const float x[2] = {0.7f, 0.3f};
    float all = 0, y = 0;
    for (int64_t i = 0; i < 64; ++i) {
      y = i < 63 ? 1e5f * static_cast<float>(std::sin(static_cast<double>(i * i))) : -all;
      all += y;
      if (i == index)
        break;
    }
    field == 0 ? std::memcpy(to, x, sizeof x) : std::memcpy(to, &y, sizeof y);
  }
};

} // namespace

TEST_CASE("check allows what rounding does to gradients whose terms cancel") {
  LinearModel model;
  TrainConfig config = planeConfig();
  config.data = std::make_shared<Cancelling>();
  config.batch = 64;
  for (const auto &[mesh, precision] : {std::pair("dp=2", ""), std::pair("dp=4", ""), std::pair("dp=2", "bf16")}) {
    INFO(mesh << " " << precision);
    CHECK(Trainer(model, config)
              .check({.mesh = mesh, .microbatches = 2, .steps = 3, .precision = precision})
              .difference == "");
  }
}

TEST_CASE("check finds a plan that begins with other values") {
  Folder folder;
  LinearModel model;
  Trainer trainer(model, planeConfig());
  const RunOptions options{.mesh = "dp=2", .microbatches = 2, .steps = 1};
  const auto sealed = PlanFile::fromBytes(trainer.plan(options), "made");
  plan::PlanT altered;
  sealed->plan().UnPackTo(&altered);
  for (auto &tensor : altered.tensors)
    if (tensor->init && tensor->name == "fc.weight")
      tensor->init->a *= 1.0001, tensor->init->b *= 1.0001;
  writePlan(folder.path + "/altered.plan", packPlan(altered));
  CHECK(trainer.check(options).difference == "");
  CHECK(trainer.check({.steps = 1, .plan = folder.path + "/altered.plan"}).difference != "");
}

TEST_CASE("what is only warned of runs all the same") {
  LinearModel frozen;
  frozen.freeze();
  Trainer still(frozen, planeConfig());
  still.train({.mesh = "dp=2", .steps = 3, .quiet = true});
  CHECK(still.check({.mesh = "dp=2", .steps = 2}).difference == "");
  struct Spare : Module {
    Linear fc{*this, "fc", 2, 1}, spare{*this, "spare", 4, 4};
    Tensor forward(Tensor x) { return fc(x); }
  } model;
  Trainer trainer(model, planeConfig());
  for (const char *mesh : {"dp=1", "dp=2"}) {
    INFO(mesh);
    CHECK(trainer.check({.mesh = mesh, .microbatches = 2, .steps = 2}).difference == "");
  }
}

TEST_CASE("a gradient that is 0 but for rounding is no difference") {
  struct Net : Module { // a norm removes constants added before it
    Linear fc1{*this, "fc1", 784, 24}, fc2{*this, "fc2", 24, 10};
    BatchNorm2d norm{*this, "norm", 24};
    Tensor forward(Tensor image) { return fc2(relu(norm(fc1(flatten(image, 1)) * 300) * 40)); }
  } model;
  Trainer trainer(model, {.optimizer = Adam{.lr = 0.01}, .batch = 64});
  for (const char *mesh : {"dp=1", "dp=2", "tp=2"}) {
    const CheckResult result = trainer.check({.mesh = mesh, .microbatches = 2, .steps = 3, .data = "synthetic"});
    INFO(mesh);
    CHECK(result.difference == "");
  }
}

TEST_CASE("dropout, tied weights, groups and batch norm: plan and graph agree under a split") {
  struct Net : Module {
    Linear fc1{*this, "fc1", 784, 24, {.bias = false}},
        fc2{*this, "fc2", 24, 24}; // a bias before a norm has gradient 0
    BatchNorm2d norm{*this, "norm", 24, {.group = 4}};
    Tensor forward(Tensor image) {
      Tensor x = dropout(silu(norm(fc1(flatten(image, 1)))), 0.3);
      x = linear(fc2(x), fc2.weight); // the same weight twice
      return slice(tanh(x) * 3.0, 1, 0, 10);
    }
  } model;
  Trainer trainer(model, {.optimizer = Sgd{.lr = 0.1, .momentum = 0.9, .nesterov = true},
                          .groups = {{.pattern = "*.bias", .lrScale = 2, .weightDecay = 0}},
                          .batch = 16});
  for (const char *mesh : {"dp=1", "dp=2", "dp=2,pp=2"}) {
    const CheckResult result =
        trainer.check({.mesh = mesh, .microbatches = 2, .steps = 2, .weightDecay = 0.01, .data = "synthetic"});
    INFO(mesh);
    CHECK(result.difference == "");
  }
}

TEST_CASE("sequence parallelism by marks: sums are scattered along the sequence, plan and graph agree") {
  struct Net : Module {
    LayerNorm norm{*this, "norm", 28};
    Linear up{*this, "up", 28, 36}, down{*this, "down", 36, 28}, head{*this, "head", 784, 10};
    Tensor forward(Tensor image) {
      const std::vector<std::string> scattered{"", "tp", ""}, whole{"", "whole", ""};
      Tensor rows = withSharding(reshape(image, {image.size(0), 28, 28}), scattered);
      Tensor x = gelu(up(withSharding(norm(rows), whole)));
      return head(reshape(withSharding(down(x), scattered) + rows, {image.size(0), 784}));
    }
  } model;
  Trainer trainer(model, {.optimizer = Sgd{.lr = 0.1}, .batch = 12});
  for (const char *mesh : {"tp=2", "tp=3", "dp=2,tp=2", "tp=2,pp=2"}) {
    const CheckResult result = trainer.check({.mesh = mesh, .microbatches = 2, .steps = 2, .data = "synthetic"});
    INFO(mesh);
    CHECK(result.difference == "");
  }
}
