// Modules with several parts, models with several outputs, losses that are sums of other losses.
#include "tests/unit/frontend/Support.h"

#include <array>
#include <cstring>

using namespace cleave;
using namespace cleave::test;

namespace {

std::vector<std::string> pathsOf(const Module &module) {
  std::vector<std::string> paths;
  for (const Parameter *parameter : module.parameters())
    paths.push_back(parameter->path());
  return paths;
}

std::string wrong(std::function<Tensor(Lambda &, Tensor)> body) {
  Lambda model(std::move(body));
  return mistake([&] { traced(model); });
}

/// A digit's class and its position: 16 numbers, an i32 label, two floats.
struct Marks : Dataset {
  std::vector<DataField> list{
      {"x", FieldType::F32, {16}}, {"kind", FieldType::I32, {}, 4}, {"place", FieldType::F32, {2}}};
  const std::vector<DataField> &fields() const override { return list; }
  int64_t samples(Split split) const override { return split == Split::Train ? 64 : 16; }
  void read(Split, int64_t index, size_t field, std::byte *to) const override {
    float x[16], place[2] = {static_cast<float>(index % 8) / 8, static_cast<float>(index / 8) / 8};
    for (int i = 0; i < 16; ++i)
      x[i] = static_cast<float>((index * 7 + i * 3) % 11) / 11;
    const int32_t kind = static_cast<int32_t>(index % 4);
    field == 0   ? std::memcpy(to, x, sizeof x)
    : field == 1 ? std::memcpy(to, &kind, sizeof kind)
                 : std::memcpy(to, place, sizeof place);
  }
};

using Both = std::pair<Tensor, Tensor>;

struct TwoHeads : ModuleOf<Both> {
  Linear body{*this, "body", 16, 8}, kind{*this, "kind", 8, 4}, place{*this, "place", 8, 2};
  Both forward(Tensor x) override {
    x = relu(body(x));
    return {kind(x), place(x)};
  }
};

/// Uses one of several outputs.
struct Nested : ModuleOf<std::vector<Tensor>> {
  struct Part : ModuleOf<std::array<Tensor, 2>> {
    Linear a, b;
    Part(Module &parent, std::string name)
        : ModuleOf(parent, std::move(name)), a{*this, "a", 16, 4}, b{*this, "b", 16, 2} {}
    std::array<Tensor, 2> forward(Tensor x) { return {a(x), b(x)}; }
  };
  Part part{*this, "part"};
  std::vector<Tensor> forward(Tensor x) {
    auto [kind, place] = part(x);
    return {kind, place};
  }
};

Loss bothLosses(std::span<const Tensor> outputs, std::span<const Tensor> targets) {
  return weightedSum({{crossEntropy(outputs[0], targets[0]), 1.0}, {mseLoss(outputs[1], targets[1]), 0.25}});
}

TrainConfig marksConfig() {
  return {
      .data = std::make_shared<Marks>(), .loss = bothLosses, .optimizer = Sgd{.lr = 0.1}, .batch = 16, .targets = 2};
}

} // namespace

TEST_CASE("modules have PyTorch's parameters") {
  struct All : Module {
    MultiheadAttention attention{*this, "attention", 8, 2};
    LSTM lstm{*this, "lstm", 3, 4, {.layers = 2}};
    GRU gru{*this, "gru", 3, 4, {.bias = false}};
    GRU both{*this, "both", 3, 4, {.layers = 2, .bias = false, .bidirectional = true}};
    Sequential row{*this, "row", layer<Linear>(4, 8), relu, layer<RmsNorm>(8)};
    GroupNorm group{*this, "group", 2, 4};
    InstanceNorm2d instance{*this, "instance", 4};
  } all;
  CHECK(pathsOf(all) ==
        std::vector<std::string>{"attention.in_proj_weight", "attention.out_proj.weight", "attention.out_proj.bias",
                                 "attention.in_proj_bias", "lstm.weight_ih_l0", "lstm.weight_hh_l0", "lstm.bias_ih_l0",
                                 "lstm.bias_hh_l0", "lstm.weight_ih_l1", "lstm.weight_hh_l1", "lstm.bias_ih_l1",
                                 "lstm.bias_hh_l1", "gru.weight_ih_l0", "gru.weight_hh_l0", "both.weight_ih_l0",
                                 "both.weight_hh_l0", "both.weight_ih_l0_reverse", "both.weight_hh_l0_reverse",
                                 "both.weight_ih_l1", "both.weight_hh_l1", "both.weight_ih_l1_reverse",
                                 "both.weight_hh_l1_reverse", "row.0.weight", "row.0.bias", "row.2.weight",
                                 "group.weight", "group.bias"});
  CHECK(all.both.layers[1].weightIh.shape() == Shape{12, 3});
  CHECK(all.both.layers[2].weightIh.shape() == Shape{12, 8});
  CHECK(all.lstm.layers[0].weightIh.shape() == Shape{16, 3});
  CHECK(all.lstm.layers[1].weightIh.shape() == Shape{16, 4});
  CHECK(all.lstm.layers[0].biasHh->initial().b == Approx(0.5));
  CHECK(all.attention.inProjWeight.initial().b == Approx(std::sqrt(6.0 / 32)));
  CHECK(all.row.size() == 3);
  CHECK(all.row[1] == nullptr);
}

TEST_CASE("rules of modules name themselves") {
  const auto q = [](int64_t heads, int64_t t) { return full({2, heads, t, 4}, 1); };
  const auto attend = [&](AttentionOptions o) { return scaledDotProductAttention(q(4, 3), q(4, 5), q(4, 5), o); };
  CHECK(has(wrong([&](auto &, Tensor) { return scaledDotProductAttention(q(4, 3), q(3, 3), q(3, 3)); }),
            "4 heads cannot share 3 heads of k and v (rule scaledDotProductAttention C2)"));
  CHECK(has(wrong([&](auto &, Tensor) {
              return attend({.mask = full({4, 5}, 0)});
            }),
            "the mask's shape 4x5 cannot be broadcast to the scores' 2x4x3x5 (rule scaledDotProductAttention C4)"));
  CHECK(has(wrong([&](auto &, Tensor) {
              return attend({.mask = full({3, 5}, 0, DType::I32)});
            }),
            "rule scaledDotProductAttention C4"));
  CHECK(has(wrong([&](auto &, Tensor) { return attend({.dropout = 1}); }), "rule scaledDotProductAttention C5"));
  const auto whole = [&] { return full({2, 4, 3, 4}, 1, DType::I32); };
  CHECK(has(wrong([&](auto &, Tensor) { return scaledDotProductAttention(whole(), whole(), whole()); }),
            "rule scaledDotProductAttention C6"));
  CHECK(has(wrong([&](auto &, Tensor) { return rotaryEmbedding(whole()); }), "rule rotaryEmbedding C4"));
  CHECK(has(wrong([&](auto &, Tensor) { return groupNorm(whole(), 2); }), "rule groupNorm C5"));
  CHECK(has(wrong([](auto &, Tensor) { return rotaryEmbedding(full({4}, 1)); }), "rule rotaryEmbedding C1"));
  CHECK(has(wrong([](auto &, Tensor) { return rotaryEmbedding(full({4, 3}, 1)); }), "rule rotaryEmbedding C2"));
  CHECK(has(wrong([](auto &, Tensor x) { return rotaryEmbedding(x, {.start = -1}); }), "rule rotaryEmbedding C3"));
  CHECK(has(wrong([](auto &, Tensor) { return rotaryEmbedding(expand(full({1, 2}, 1), {(1 << 26) + 1, 2})); }),
            "rule rotaryEmbedding C5"));
  CHECK(has(wrong([](auto &, Tensor x) { return rmsNorm(x, full({3}, 1)); }), "rule rmsNorm C1"));
  CHECK(has(wrong([](auto &, Tensor x) { return groupNorm(x, 2); }), "rule groupNorm C2"));
  CHECK(has(wrong([](auto &, Tensor x) { return groupNorm(x, 1, full({3}, 1)); }), "rule groupNorm C3"));
  CHECK(has(wrong([](auto &, Tensor) { return groupNorm(full({4, 2}, 1), 2); }), "rule groupNorm C4"));
  CHECK(has(wrong([](auto &, Tensor) { return instanceNorm(full({4, 2}, 1)); }), "rule instanceNorm C1"));
  CHECK(has(wrong([](auto &, Tensor x) {
              Loss loss = weightedSum({});
              return loss.sum;
            }),
            "rule weightedSum C1"));
}

TEST_CASE("a module's mistake points at the user's line") {
  struct Wrong : Module {
    LSTM lstm{*this, "lstm", 8, 4};
    Tensor forward(Tensor image) {
      return tenLogits(lstm(squeeze(image, 1))); // the line of the message
    }
  } model;
  const unsigned line = __LINE__ - 3;
  const std::string message = mistake([&] { traced(model); });
  CHECK(has(message, "ModulesTest.cpp:" + std::to_string(line)));
  CHECK(has(message, "lstm: the input must be [batch, positions, 8] (rule lstm C1)"));
  struct Heads : Module {
    MultiheadAttention attention{*this, "attention", 8, 3};
  };
  CHECK(has(mistake([] { Heads heads; }), "3 heads do not divide a width of 8 (rule multiheadAttention C1)"));
  struct Row : Module {
    Sequential row{*this, "row", layer<Linear>(4, -1)};
  };
  CHECK(has(mistake([] { Row row; }), "rule parameter C1"));
}

TEST_CASE("steps of a sequence are equal") {
  struct Recurrent : Module {
    GRU gru{*this, "gru", 28, 10};
    Tensor forward(Tensor image) { return select(gru(squeeze(image, 1)).output, 1, -1); }
  } model;
  const std::string text = forwardPart(traced(model));
  CHECK(count(text, "cleave.matmul") == 28); // one product for all inputs, one for each state except the first
  CHECK(count(text, "cleave.tanh") == 28);
}

TEST_CASE("modules are the same function under every split") {
  struct Mixed : Module {
    Conv2d conv{*this, "conv", 1, 4, {.kernel = 7, .stride = 7}};
    GroupNorm group{*this, "group", 2, 4};
    InstanceNorm2d instance{*this, "instance", 4, {.affine = true}};
    MultiheadAttention attention{*this, "attention", 16, 4, {.dropout = 0.25, .causal = true}};
    RmsNorm norm{*this, "norm", 16};
    GRU gru{*this, "gru", 16, 6, {.layers = 2, .dropout = 0.25}};
    LSTM both{*this, "both", 6, 3, {.bidirectional = true}};
    Sequential head{*this, "head", layer<Linear>(6, 12), relu, layer<Dropout>(0.5), layer<Linear>(12, 10)};
    Tensor forward(Tensor image) {
      Tensor x = flatten(instance(relu(group(conv(image)))), 2); // [b, 4, 16]
      Tensor far = full({4, 4}, -0.5) * unsqueeze(cast(arange(4), DType::F32), 1);
      x = x + attention(norm(x), norm(x), norm(x), far);
      auto [y, state] = gru(x);
      return head(select(both(y).output, 1, -1) + select(state, 0, 0));
    }
  } model;
  Trainer trainer(model, {.optimizer = Adam{.lr = 0.01}, .batch = 8});
  for (const char *mesh : {"dp=1", "dp=2", "tp=2", "pp=2", "dp=2,tp=2,pp=2"}) {
    INFO(mesh);
    CHECK(trainer.check({.mesh = mesh, .microbatches = 2, .steps = 2, .data = "synthetic"}).difference == "");
  }
}

TEST_CASE("lists of any modules") {
  struct Lists : Module {
    ModuleList<Nested::Part> parts{*this, "parts", 2};
    ModuleList<LSTM> lstms{*this, "lstms", 2, 28, 28};
    Tensor forward(Tensor image) {
      Tensor x = flatten(lstms(squeeze(image, 1)), 1);
      Tensor sum = full({4, 4}, 0);
      for (auto &part : parts)
        sum += part(slice(x, 1, 0, 16))[0];
      return concat({sum, sum, sum}, 1);
    }
  } model;
  const std::string text = forwardPart(traced(model));
  CHECK(has(text, "cleave.path = \"lstms.1\""));
  CHECK(has(text, "cleave.path = \"parts.1.a\""));
  struct Wrong : Module {
    ModuleList<Nested::Part> parts{*this, "parts", 2};
    Tensor forward(Tensor image) { return parts(image); }
  } wrong;
  CHECK(has(mistake([&] { traced(wrong); }), "parts: the module defines no forward of 1 tensor"));
}

TEST_CASE("several outputs, several targets, several losses") {
  TwoHeads two;
  Nested nested;
  const std::string text = traced(two, marksConfig());
  CHECK(has(text, "cleave.path = \"kind\""));
  CHECK(has(text, "cleave.static_weight = 4"));
  CHECK(has(text, "\"correct\""));
  CHECK(has(traced(nested, marksConfig()), "cleave.path = \"part.a\""));
  for (const char *mesh : {"dp=1", "dp=2", "tp=2", "pp=2", "dp=2,tp=2,pp=2"}) {
    INFO(mesh);
    CHECK(Trainer(two, marksConfig()).check({.mesh = mesh, .microbatches = 2, .steps = 2}).difference == "");
  }
  TrainConfig config = marksConfig();
  config.loss = crossEntropy;
  CHECK(has(mistake([&] { traced(two, config); }), "it takes one output and one target, the model returns 2"));
  config.targets = 3;
  CHECK(has(mistake([&] { traced(two, config); }), "at least 4 fields are needed, the last 3 of them"));
}

TEST_CASE("a weighted sum adds means") {
  struct One : Module {
    Linear fc{*this, "fc", 784, 10};
    Tensor forward(Tensor image) { return fc(flatten(image, 1)); }
  } model;
  const auto half = [](Tensor logits, Tensor labels) {
    const Tensor zero = full(logits.shape(), 0);
    return weightedSum({{crossEntropy(logits, labels), 0.5}, {mseLoss(logits, zero), 2.0}});
  };
  TrainConfig config{.loss = half};
  const std::string text = forwardPart(traced(model, config));
  CHECK(has(text, "dense<5.000000e-01>"));
  CHECK(has(text, "dense<2.000000e+00>"));
  CHECK(has(traced(model, config), "cleave.static_weight = 4"));
  const auto alone = [](Tensor logits, Tensor labels) { return weightedSum({{crossEntropy(logits, labels), 1.0}}); };
  config.loss = alone;
  CHECK(count(forwardPart(traced(model, config)), "cleave.mul") == 0);
}
