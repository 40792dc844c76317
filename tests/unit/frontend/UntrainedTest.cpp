// What training leaves as it was: parameters without a gradient, and frozen parts with their buffers.
#include "tests/unit/frontend/Support.h"

#include "runtime/checkpoint/Manifest.h"
#include "runtime/checkpoint/Safetensors.h"

#include <cstring>
#include <filesystem>
#include <map>
#include <unistd.h>

using namespace cleave;
using namespace cleave::test;

namespace {

struct Points : Dataset {
  std::vector<DataField> list{{"x", FieldType::F32, {2}}, {"target", FieldType::F32, {2}}};
  const std::vector<DataField> &fields() const override { return list; }
  int64_t samples(Split) const override { return 32; }
  void read(Split, int64_t index, size_t field, std::byte *to) const override {
    const auto i = static_cast<float>(index);
    const float x[2] = {i / 8, 1 - i / 16}, y[2] = {x[0] - x[1], 3 * x[1]};
    field == 0 ? std::memcpy(to, x, sizeof x) : std::memcpy(to, y, sizeof y);
  }
};

/// Of eight ways to be a parameter only `used` is trained; all begin as 1.
struct Parts : ModuleOf<std::pair<Tensor, Tensor>> {
  Linear used{*this, "used", 2, 2, {.bias = false}}, spare{*this, "spare", 2, 2, {.bias = false}},
      stopped{*this, "stopped", 2, 2, {.bias = false}}, side{*this, "side", 2, 2, {.bias = false}},
      frozen{*this, "frozen", 2, 2, {.bias = false}};
  BatchNorm2d still{*this, "still", 2}, moving{*this, "moving", 2};
  Parameter compared{*this, "compared", {2}};
  Parts() {
    for (Parameter *parameter : module().parameters())
      parameter->initialise(init::ones());
    frozen.weight.requiresGrad(false);
    still.freeze();
    moving.weight.requiresGrad(false), moving.bias.requiresGrad(false);
  }
  std::pair<Tensor, Tensor> forward(Tensor x) {
    Tensor y = used(frozen(moving(still(x)))) + detach(stopped(x));
    return {where(y > compared, y, 2 * y), side(x)}; // the loss ignores the second output
  }
};

TrainConfig configWith(Optimizer optimizer, double ema = 0) {
  return {.data = std::make_shared<Points>(),
          .loss = LossFunction([](std::span<const Tensor> outputs, std::span<const Tensor> targets) {
            return mseLoss(outputs[0], targets[0]);
          }),
          .optimizer = optimizer,
          .ema = ema,
          .batch = 16};
}

struct Folder {
  std::string path = std::filesystem::temp_directory_path() / ("cleave-untrained-" + std::to_string(getpid()));
  ~Folder() { std::filesystem::remove_all(path); }
};

/// The tensors of a checkpoint by name.
std::map<std::string, std::vector<float>> tensorsOf(const std::string &folder) {
  std::map<std::string, std::vector<float>> tensors;
  for (const ManifestTensor &tensor : readManifest(folder).tensors)
    for (const ManifestPiece &piece : tensor.pieces) {
      const SafetensorsFile file(folder + "/" + piece.file);
      int64_t elements = 1;
      for (const int64_t size : piece.size)
        elements *= size;
      std::vector<float> values(static_cast<size_t>(elements));
      file.read(file.entry(piece.key), 0, values.data(), values.size() * sizeof(float));
      auto &all = tensors[tensor.name];
      all.insert(all.end(), values.begin(), values.end());
    }
  return tensors;
}

bool all(const std::vector<float> &values, float value) {
  return !values.empty() && std::all_of(values.begin(), values.end(), [&](float each) { return each == value; });
}

} // namespace

TEST_CASE("only parameters with a gradient are trained, under any split and optimizer") {
  for (const Optimizer &optimizer : {Optimizer(Sgd{.lr = 0.01, .momentum = 0.9, .weightDecay = 0.1}),
                                     Optimizer(AdamW{.lr = 0.01, .weightDecay = 0.1})})
    for (const RunOptions &split :
         {RunOptions{.mesh = "dp=1", .microbatches = 1}, RunOptions{.mesh = "dp=2", .microbatches = 2, .zero = 1},
          RunOptions{.mesh = "tp=2", .microbatches = 2}, RunOptions{.mesh = "pp=2", .microbatches = 2}}) {
      INFO(split.mesh);
      Folder folder;
      Parts model;
      Trainer trainer(model, configWith(optimizer, 0.5));
      RunOptions options = split;
      options.steps = 3;
      CHECK(trainer.check(options).difference == "");
      options.checkpoint = folder.path;
      options.quiet = true;
      trainer.train(options);
      auto found = tensorsOf(folder.path);
      CHECK(!all(found["used.weight"], 1));
      for (const char *name : {"spare.weight", "stopped.weight", "side.weight", "frozen.weight", "compared",
                               "still.weight", "moving.weight", "still.running_var"}) {
        INFO(name);
        CHECK(all(found[name], 1));
      }
      CHECK(all(found["still.running_mean"], 0));
      CHECK(!all(found["moving.running_mean"], 0)); // as with PyTorch's requires_grad_(False)
      for (const auto &[name, values] : found)
        if (readManifest(folder.path).find(name)->kind == "state")
          CHECK(name.starts_with("used.weight."));
    }
}

TEST_CASE("what is trained does not depend on what is simplified") {
  struct Halves : Module {
    Linear left{*this, "left", 2, 2, {.bias = false}}, right{*this, "right", 2, 2, {.bias = false}};
    Halves() { right.weight.initialise(init::ones()); }
    Tensor forward(Tensor x) { return chunk(concat({left(x), right(x)}, 1), 2, 1)[0]; } // of left alone
  };
  float value = 1, momentum = 0; // as torch.optim.SGD with a gradient of zero
  for (int step = 0; step < 3; ++step)
    momentum = 0.9f * momentum + 0.1f * value, value -= 0.01f * momentum;
  for (const char *layout : {"nchw", "nhwc"})
    for (const char *mesh : {"dp=1", "dp=2", "tp=2", "pp=2"}) {
      INFO(layout << " " << mesh);
      Folder folder;
      Halves model;
      TrainConfig config = configWith(Sgd{.lr = 0.01, .momentum = 0.9, .weightDecay = 0.1});
      config.loss = mseLoss;
      Trainer trainer(model, config);
      RunOptions options{.mesh = mesh, .microbatches = 2, .steps = 3, .layout = layout};
      CHECK(trainer.check(options).difference == "");
      options.checkpoint = folder.path, options.quiet = true;
      trainer.train(options);
      const auto found = tensorsOf(folder.path);
      for (const float each : found.at("right.weight"))
        CHECK(each == Approx(value));
    }
}

TEST_CASE("states of parameters that are no longer trained are not read") {
  struct Net : Module {
    Linear fc{*this, "fc", 2, 2}, more{*this, "more", 2, 2};
    bool uses = true;
    Tensor forward(Tensor x) { return uses ? fc(x) + more(x) : fc(x); }
  };
  Folder folder;
  TrainConfig config = configWith(Sgd{.lr = 0.01, .momentum = 0.9});
  config.loss = mseLoss;
  Net both, first;
  first.uses = false;
  Trainer(both, config).train({.steps = 1, .checkpoint = folder.path, .quiet = true});
  const auto before = tensorsOf(folder.path);
  CHECK(before.count("more.weight.momentum"));
  Trainer(first, config).train({.steps = 2, .checkpoint = folder.path, .resume = true, .quiet = true});
  auto after = tensorsOf(folder.path);
  CHECK(after["more.weight"] == before.at("more.weight"));
  CHECK(after["fc.weight"] != before.at("fc.weight"));
  CHECK(!after.count("more.weight.momentum"));
  // The reverse lacks a momentum, and another optimizer's states are an error as before.
  CHECK(has(mistake([&] { Trainer(both, config).train({.steps = 3, .checkpoint = folder.path, .resume = true}); }),
            "more.weight.momentum is missing"));
}
