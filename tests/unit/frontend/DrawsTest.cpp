// Random tensors with numbers for each sample, and those that all samples share, are the same however the batch is cut.
#include "tests/unit/frontend/Support.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <unistd.h>

using namespace cleave;
using namespace cleave::test;

namespace {

struct Points : Dataset {
  std::vector<DataField> list{{"x", FieldType::F32, {4}}, {"y", FieldType::F32, {4}}};
  const std::vector<DataField> &fields() const override { return list; }
  int64_t samples(Split split) const override { return split == Split::Train ? 12 : 10; }
  void read(Split, int64_t index, size_t field, std::byte *to) const override {
    float x[4];
    for (int i = 0; i < 4; ++i)
      x[i] = std::sin(static_cast<float>(index * 4 + i + 7 * static_cast<int64_t>(field)));
    std::memcpy(to, x, sizeof x);
  }
};

struct Net : Module {
  Linear fc{*this, "fc", 4, 4};
  std::function<Tensor(Net &, Tensor)> body;
  explicit Net(std::function<Tensor(Net &, Tensor)> body) : body(std::move(body)) {}
  Tensor forward(Tensor x) { return body(*this, x); }
};

using Body = Tensor (*)(Net &, Tensor);

Tensor ofSamples(Net &net, Tensor x) { return net.fc(x + randn(x.shape())); }
/// The samples are the last dimension.
Tensor turned(Net &net, Tensor x) { return net.fc(x + transpose(randn({4, x.size(0)}), 0, 1)); }
Tensor shared(Net &net, Tensor x) { return net.fc(x + randn({1, 4})); }
Tensor scalar(Net &net, Tensor x) { return net.fc(x * cleave::rand({})); }
Tensor summed(Net &net, Tensor x) { return net.fc(x + mean(randn({12, 4}), {0}, true)); }

TrainConfig config() {
  return {.data = std::shared_ptr<Dataset>(std::make_shared<Points>()),
          .loss = mseLoss,
          .optimizer = Sgd{.lr = 0.3},
          .batch = 12};
}

/// The losses of three steps, of an evaluation after them, and its predictions' sum.
std::vector<double> resultsOf(Trainer &trainer, const std::string &folder, RunOptions options, int64_t evalBatch) {
  std::filesystem::remove_all(folder);
  options.steps = 3, options.seed = 4, options.quiet = true;
  options.metrics = folder + "/metrics.jsonl", options.checkpoint = folder + "/ck";
  std::filesystem::create_directories(folder);
  trainer.train(options);
  std::vector<double> found;
  std::ifstream in(options.metrics);
  for (std::string line; std::getline(in, line);)
    if (const size_t at = line.find("\"loss\":"); has(line, "\"step\"") && at != std::string::npos)
      found.push_back(std::stod(line.substr(at + 7)));
  found.push_back(trainer.evaluate({.microbatches = 1, .batch = evalBatch, .checkpoint = options.checkpoint}).loss);
  double sum = 0;
  for (const float value :
       trainer.predictor({.batch = evalBatch, .checkpoint = options.checkpoint})(Points(), Split::Eval))
    sum += value;
  found.push_back(sum);
  std::filesystem::remove_all(folder);
  return found;
}

} // namespace

TEST_CASE("random numbers are the same for every number of microbatches and every batch of an evaluation") {
  const std::string folder = std::filesystem::temp_directory_path() / fmt::format("cleave-draws-{}", getpid());
  const std::pair<const char *, Body> models[] = {
      {"of samples", ofSamples}, {"turned", turned}, {"shared", shared}, {"scalar", scalar}, {"summed", summed}};
  for (const auto &[name, body] : models) {
    Net net(body);
    Trainer trainer(net, config());
    const std::vector<double> whole = resultsOf(trainer, folder, {}, 10);
    REQUIRE(whole.size() == 5);
    CHECK(whole[0] != whole[1]);
    for (const auto &[options, batch] : {std::pair(RunOptions{.microbatches = 2}, 4),
                                         {RunOptions{.microbatches = 3}, 5},
                                         {RunOptions{.microbatches = 12}, 1},
                                         {RunOptions{.mesh = "dp=2", .microbatches = 3}, 2},
                                         {RunOptions{.mesh = "tp=2"}, 3}}) {
      CAPTURE(name, options.mesh, options.microbatches.value_or(1), batch);
      const std::vector<double> cut = resultsOf(trainer, folder, options, batch);
      for (size_t i = 0; i < whole.size(); ++i)
        CHECK(cut[i] == Approx(whole[i]).epsilon(1e-4));
    }
  }
}

TEST_CASE("a model whose code fixes the number of samples has them in dimension 0 of its draws") {
  Net net([](Net &self, Tensor x) { return self.fc(reshape(x, {12, 4}) + randn({12, 4}) + randn({1, 4})); });
  const std::string text = Trainer(net, config()).graph({});
  CHECK(has(text, "name = \"/randn.0\"} : () -> tensor<12x4xf32>"));
  CHECK(has(text, "name = \"/randn.2\", shared} : () -> tensor<1x4xf32>"));
}
