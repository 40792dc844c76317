// Predictors: a checkpoint's model as a function of new inputs, and the files with predictions.
#include "frontend/program/Npy.h"
#include "tests/unit/frontend/Support.h"

#include "runtime/checkpoint/Manifest.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <set>
#include <thread>
#include <unistd.h>

using namespace cleave;
using namespace cleave::test;

namespace {

/// Two inputs, x [2] and scale [1], and a target that predictions must not read.
struct Pairs : Dataset {
  std::vector<DataField> list{{"x", FieldType::F32, {2}}, {"scale", FieldType::F32, {1}}, {"y", FieldType::F32, {1}}};
  bool broken = false;
  const std::vector<DataField> &fields() const override { return list; }
  int64_t samples(Split split) const override { return split == Split::Train ? 64 : 11; }
  void read(Split, int64_t index, size_t field, std::byte *to) const override {
    if (broken)
      throw std::runtime_error("a disk that fails");
    const auto i = static_cast<float>(index);
    const float x[2] = {i / 8, 1 - i / 16}, scale = 1 + i, y = x[0] * scale;
    field == 0 ? std::memcpy(to, x, sizeof x) : std::memcpy(to, field == 1 ? &scale : &y, sizeof y);
  }
};

struct Scaled : Module {
  Linear fc{*this, "fc", 2, 3};
  Tensor forward(Tensor x, Tensor scale) override { return dropout(fc(x), 0.5) * scale; }
};

Loss firstOf(Tensor prediction, Tensor target) { return mseLoss(slice(prediction, 1, 0, 1), target); }

TrainConfig config() {
  return {.data = std::make_shared<Pairs>(), .loss = firstOf, .optimizer = Sgd{.lr = 0.001}, .batch = 8};
}

/// The path of a folder of this process.
std::string temporary(const std::string &name) {
  return std::filesystem::temp_directory_path() / ("cleave-predictor-" + name + "-" + std::to_string(getpid()));
}

/// Writes a checkpoint of one training step.
struct Checkpoint {
  std::string path = temporary("scaled");
  Checkpoint() {
    Scaled model;
    Trainer(model, config()).train({.steps = 1, .checkpoint = path, .quiet = true});
  }
  ~Checkpoint() { std::filesystem::remove_all(path); }
};

void checkClose(const std::vector<float> &one, const std::vector<float> &two) {
  REQUIRE(one.size() == two.size());
  for (size_t i = 0; i < one.size(); ++i)
    CHECK(one[i] == Approx(two[i]).epsilon(1e-5).margin(1e-6));
}

} // namespace

TEST_CASE("a predictor computes new inputs, any number of them, as often as asked") {
  const Checkpoint checkpoint;
  Scaled model;
  Trainer trainer(model, config());
  Predictor predictor = trainer.predictor({.checkpoint = checkpoint.path});
  CHECK(predictor.batch() == 8);
  CHECK(predictor.outputs() == 1);
  CHECK(predictor.outputShape() == Shape{3});
  REQUIRE(predictor.inputs().size() == 2); // without the target
  CHECK(predictor.inputs()[1].name == "scale");

  const std::vector<float> x{1, 2, 3, 4}, ones{1, 1}, twos{2, 2};
  const std::vector<float> plain = predictor.run({x, ones})[0], doubled = predictor.run({x, twos})[0];
  REQUIRE(plain.size() == 6); // two samples, though the batch is eight
  for (size_t i = 0; i < plain.size(); ++i)
    CHECK(doubled[i] == 2 * plain[i]);
  CHECK(predictor.run({x, ones})[0] == plain); // the same numbers again: no dropout
  CHECK(predictor.run({std::vector<float>{}, std::vector<float>{}})[0].empty());

  const std::vector<float> split = predictor(Pairs{}); // eleven samples: a whole batch and a partial one
  CHECK(split.size() == 33);
  std::vector<float> third;
  std::thread([&] { third = predictor.run({std::vector<float>{0.25f, 0.875f}, std::vector<float>{3}})[0]; }).join();
  checkClose(third, {split.begin() + 6, split.begin() + 9});
  checkClose(trainer.predictor({.mesh = "dp=2", .batch = 3, .checkpoint = checkpoint.path})(Pairs{}), split);
  checkClose(trainer.predictor({.mesh = "tp=3", .batch = 1, .checkpoint = checkpoint.path})(Pairs{}), split);
  checkClose(trainer.predictor({.devices = 2, .batch = 3, .checkpoint = checkpoint.path})(Pairs{}), split);
  CHECK_THROWS(trainer.predictor({.devices = 64, .batch = 1, .checkpoint = checkpoint.path})); // it cannot be split so
}

TEST_CASE("threads that call one predictor get their own results") {
  const Checkpoint checkpoint;
  Scaled model;
  Trainer trainer(model, config());
  Predictor shared = trainer.predictor({.mesh = "dp=2", .batch = 4, .checkpoint = checkpoint.path}),
            other = trainer.predictor({.checkpoint = checkpoint.path});
  const auto inputsOf = [](int thread) {
    std::vector<float> x(static_cast<size_t>(2 * (thread + 1))), scale(x.size() / 2, static_cast<float>(thread));
    std::iota(x.begin(), x.end(), static_cast<float>(thread));
    return std::pair(x, scale);
  };
  std::vector<std::vector<float>> expected;
  for (int thread = 0; thread < 4; ++thread) {
    const auto [x, scale] = inputsOf(thread);
    expected.push_back(shared.run({x, scale})[0]);
  }
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&, thread] {
      const auto [x, scale] = inputsOf(thread);
      for (int call = 0; call < 50; ++call) {
        wrong[static_cast<size_t>(thread)] += shared.run({x, scale})[0] != expected[static_cast<size_t>(thread)];
        if (thread == 0) // predictors are independent of each other
          other.run({x, scale});
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  CHECK(wrong == std::vector<int>(4, 0));
}

TEST_CASE("a predictor gives every output of a model") {
  struct Two : ModuleOf<std::pair<Tensor, Tensor>> {
    Linear fc{*this, "fc", 2, 3}, out{*this, "out", 3, 2};
    std::pair<Tensor, Tensor> forward(Tensor x, Tensor scale) {
      Tensor y = fc(x);
      stage(1);
      return {y, out(y) * scale};
    }
  };
  Two model;
  TrainConfig two = config();
  two.loss = LossFunction(
      [](std::span<const Tensor> outputs, std::span<const Tensor> targets) { return firstOf(outputs[0], targets[0]); });
  const std::string path = temporary("two");
  Trainer trainer(model, two);
  trainer.train({.steps = 1, .checkpoint = path, .quiet = true});
  const std::vector<float> x{1, 2, 3, 4}, scale{10, 100};
  std::vector<std::vector<float>> whole;
  for (const char *mesh : {"dp=1", "pp=2", "dp=2,pp=2"}) { // with pp=2 each stage has one output
    Predictor predictor = trainer.predictor({.mesh = mesh, .batch = 4, .checkpoint = path});
    REQUIRE(predictor.outputs() == 2);
    CHECK(predictor.outputShape(1) == Shape{2});
    const auto values = predictor.run({x, scale});
    if (whole.empty())
      whole = values;
    CHECK(values[0].size() == 6);
    checkClose(values[0], whole[0]);
    checkClose(values[1], whole[1]);
  }
  std::filesystem::remove_all(path);
}

TEST_CASE("a predictor says what does not fit") {
  const Checkpoint checkpoint;
  Scaled model;
  Trainer trainer(model, config());
  Predictor predictor = trainer.predictor({.checkpoint = checkpoint.path});
  const std::vector<float> two{1, 2};
  const std::vector<int32_t> whole{1, 2};
  CHECK(mistake([&] { predictor(two); }) == "predictor: the model reads 2 fields, found 1");
  CHECK(mistake([&] { predictor.run({whole, two}); }) == "predictor: field x is f32, found i32");
  CHECK(has(mistake([&] { predictor.run({std::vector<float>{1, 2, 3}, two}); }), "2 values a sample"));
  CHECK(has(mistake([&] { predictor.run({two, two}); }), "field scale has 2 samples, field x has 1"));
  CHECK(has(mistake([&] { trainer.predictor({}); }), "--checkpoint: a prediction needs"));
  CHECK(has(mistake([&] { trainer.predictor({.checkpoint = "/none"}); }), "/none"));
  CHECK(predictor.run({two, std::vector<float>{1}})[0].size() == 3); // the predictor still works after these errors

  Pairs broken;
  broken.broken = true;
  CHECK_THROWS_WITH(predictor(broken), Catch::Contains("a disk that fails"));
  // the predictor has ended, and repeats the reason
  CHECK_THROWS_WITH(predictor(Pairs{}), Catch::Contains("a disk that fails"));
}

TEST_CASE("what is neither a scalar nor has a row for each sample is no prediction") {
  struct Sum : Module {
    Linear fc{*this, "fc", 2, 1};
    Tensor forward(Tensor x, Tensor scale) override { return sum(fc(x) * scale, {0}); }
  } model;
  CHECK(has(mistake([&] { tracePrediction(makeModel(model), config(), 4); }), "first dimension is the batch"));
}

namespace {

/// Outputs that reshape what was computed, one of a layer that the loss ignores, and a scalar; and layers without use.
struct Outputs : ModuleOf<std::vector<Tensor>> {
  Linear fc{*this, "fc", 2, 6}, side{*this, "side", 2, 3}, frozen{*this, "frozen", 4, 4};
  BatchNorm2d idle{*this, "idle", 5};
  Outputs() { frozen.freeze(); }
  std::vector<Tensor> forward(Tensor x, Tensor scale) override {
    Tensor y = relu(fc(x)) * scale;
    return {sum(y, {1}, true), reshape(y, {y.size(0), 3, 2, 1}),
            max(y, {1}, true), logsumexp(y, {1}, true),
            side(x),           mean(y)};
  }
};

TrainConfig ofOutputs() {
  TrainConfig many = config();
  many.loss = LossFunction(
      [](std::span<const Tensor> outputs, std::span<const Tensor> targets) { return firstOf(outputs[0], targets[0]); });
  return many;
}

} // namespace

TEST_CASE("outputs may reshape what the model computes, and be scalars of full batches") {
  Outputs model;
  const std::string path = temporary("outputs");
  Trainer trainer(model, ofOutputs());
  trainer.train({.steps = 1, .checkpoint = path, .quiet = true});
  const std::vector<float> x{1, 2, 3, 4, -5, 6}, scale{1, 2, 3};
  std::vector<std::vector<float>> whole;
  for (const char *mesh : {"dp=1", "dp=2", "tp=2"}) {
    Predictor predictor = trainer.predictor({.mesh = mesh, .batch = 2, .checkpoint = path});
    REQUIRE(predictor.outputs() == 6);
    CHECK(predictor.outputShape(1) == Shape{3, 2, 1});
    CHECK(predictor.outputShape(5).empty());
    const auto values = predictor.run({x, scale});
    if (whole.empty())
      whole = values;
    for (size_t i = 0; i < values.size(); ++i)
      checkClose(values[i], whole[i]);
  }
  REQUIRE(whole[1].size() == 18);
  REQUIRE(whole[5].size() == 1); // three samples: one full batch
  double sum = 0;
  for (size_t i = 0; i < 12; ++i)
    sum += whole[1][i];
  CHECK(whole[5][0] == Approx(sum / 12));
  for (size_t i = 0; i < 3; ++i) {
    const auto *row = &whole[1][6 * i];
    CHECK(whole[0][i] == Approx(std::accumulate(row, row + 6, 0.0)));
    CHECK(whole[2][i] == *std::max_element(row, row + 6));
    CHECK(whole[3][i] > whole[2][i]);
  }
  std::filesystem::remove_all(path);
}

TEST_CASE("random numbers of predictions and evaluations belong to call, seed and sample") {
  struct Noise : ModuleOf<std::pair<Tensor, Tensor>> {
    Linear fc{*this, "fc", 2, 1};
    std::pair<Tensor, Tensor> forward(Tensor x, Tensor scale) override {
      return {fc(x) * scale, randn({x.size(0), 3})};
    }
  } model;
  TrainConfig noisy = config();
  noisy.loss = LossFunction([](std::span<const Tensor> outputs, std::span<const Tensor>) {
    return Loss{sum(outputs[1]), full({}, static_cast<double>(outputs[1].size(0))), {}, outputs[1].size(0)};
  });
  const std::string path = temporary("noise");
  Trainer trainer(model, noisy);
  trainer.train({.seed = 5, .steps = 1, .checkpoint = path, .quiet = true});
  const std::vector<float> x(14), scale(7);
  const auto predict = [&](const RunOptions &options) { return trainer.predictor(options).run({x, scale})[1]; };
  const std::vector<float> one = predict({.batch = 1, .checkpoint = path});
  CHECK(std::set<float>(one.begin(), one.end()).size() == 21); // new in every row
  for (const int64_t batch : {2, 3, 7, 8})
    CHECK(predict({.batch = batch, .checkpoint = path}) == one);
  CHECK(predict({.mesh = "dp=2", .batch = 4, .checkpoint = path}) == one);
  CHECK(predict({.batch = 4, .seed = 5, .checkpoint = path}) == one); // the training's seed
  CHECK(predict({.batch = 4, .seed = 6, .checkpoint = path}) != one);
  Predictor predictor = trainer.predictor({.batch = 4, .checkpoint = path});
  const std::vector<float> first = predictor(Pairs{});
  CHECK(predictor.run({x, scale})[1] != one); // the second call

  const double loss = trainer.evaluate({.batch = 1, .checkpoint = path}).loss; // of eleven samples
  CHECK(loss != 0);
  for (const int64_t batch : {4, 6, 11, 16})
    CHECK(trainer.evaluate({.microbatches = 1, .batch = batch, .checkpoint = path}).loss == Approx(loss));
  CHECK(trainer.evaluate({.microbatches = 2, .batch = 6, .checkpoint = path}).loss == Approx(loss));
  std::filesystem::remove_all(path);
}

TEST_CASE("a checkpoint has every parameter and buffer, used or not, and of no other model") {
  Outputs model;
  const std::string path = temporary("unused");
  Trainer(model, ofOutputs()).train({.mesh = "pp=1,dp=2", .steps = 1, .checkpoint = path, .zero = 3, .quiet = true});
  const Manifest manifest = readManifest(path);
  for (const Parameter *parameter : model.module().parameters())
    CHECK(manifest.find(parameter->path()));
  for (const Buffer *buffer : model.module().buffers())
    CHECK(manifest.find(buffer->path()));
  Trainer(model, ofOutputs()).train({.mesh = "dp=1", .steps = 2, .checkpoint = path, .resume = true, .quiet = true});
  Trainer(model, ofOutputs()).evaluate({.checkpoint = path});

  struct Fewer : Outputs {
    std::vector<Tensor> forward(Tensor x, Tensor scale) override { return {Outputs::forward(x, scale)[0]}; }
  } fewer; // predicts with some of the checkpoint's tensors
  CHECK(Trainer(fewer, ofOutputs()).predictor({.checkpoint = path}).outputs() == 1);
  struct Another : Module {
    Linear fc{*this, "fc", 2, 6};
    Tensor forward(Tensor x, Tensor scale) override { return fc(x) * scale; }
  } another;
  CHECK(
      has(mistake([&] { Trainer(another, config()).predictor({.checkpoint = path}); }), "does not exist in the model"));
  std::filesystem::remove_all(path);
}

TEST_CASE("the header of a .npy file") {
  for (const Shape &shape : {Shape{}, Shape{5}, Shape{2000, 10}, Shape{7, 64, 128, 3, 1000000}}) {
    const std::string header = npyHeader(shape);
    CHECK(header.size() % 64 == 0);
    CHECK(header.substr(0, 8) == std::string("\x93NUMPY\x01\x00", 8));
    CHECK(static_cast<unsigned char>(header[8]) + 256u * static_cast<unsigned char>(header[9]) + 10 == header.size());
    CHECK(header.back() == '\n');
  }
  CHECK(has(npyHeader({5}), "'shape': (5,), }"));
  CHECK(has(npyHeader({2000, 10}), "{'descr': '<f4', 'fortran_order': False, 'shape': (2000, 10), }"));
}

namespace {

/// Two ids in [0, 4), and the number of the sample as its target.
struct TwoIds : Dataset {
  std::vector<DataField> list{{"ids", FieldType::I32, {2}}, {"y", FieldType::F32, {3}}};
  const std::vector<DataField> &fields() const override { return list; }
  int64_t samples(Split) const override { return 8; }
  void read(Split, int64_t index, size_t field, std::byte *to) const override {
    const auto i = static_cast<int32_t>(index);
    const int32_t ids[2] = {i % 4, (i + 1) % 4};
    const float y[3] = {static_cast<float>(i), 0, 1};
    field == 0 ? std::memcpy(to, ids, sizeof ids) : std::memcpy(to, y, sizeof y);
  }
};

struct Looked : Module {
  bool computes;
  Embedding table{*this, "table", 4, 3};
  explicit Looked(bool computes) : computes(computes) {}
  Tensor forward(Tensor ids) override { return sum(table(computes ? ids * 2 - ids : ids), {1}); }
};

} // namespace

TEST_CASE("a call with ids outside a table is refused, and the predictor serves the next one") {
  const bool computes = GENERATE(false, true);
  const std::string path = temporary("looked");
  Looked model(computes);
  Trainer trainer(model,
                  {.data = std::make_shared<TwoIds>(), .loss = mseLoss, .optimizer = Sgd{.lr = 0.1}, .batch = 4});
  trainer.train({.steps = 1, .checkpoint = path, .quiet = true});
  Predictor predictor = trainer.predictor({.mesh = GENERATE("dp=1", "dp=2"), .checkpoint = path});
  const std::vector<int32_t> good{0, 1, 3, 2}, bad{0, 1, 3, 4};
  const std::vector<float> wanted = predictor(good);
  for (int again = 0; again < 3; ++again) {
    const std::string message = mistake([&] { predictor(bad); });
    INFO(message);
    CHECK(
        has(message, computes ? "prediction: indices of embedding at PredictorTest.cpp:" : "found 4 at element 1 of"));
    CHECK(predictor(good) == wanted);
  }
  std::filesystem::remove_all(path);
}
