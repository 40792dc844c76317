// The results of tracing: ops, paths, attributes, parameters, buffers.
#include "tests/unit/frontend/Support.h"

using namespace cleave;
using namespace cleave::test;

namespace {

struct Mlp : Module {
  Linear fc1{*this, "fc1", 784, 32}, fc2{*this, "fc2", 32, 10, {.bias = false}};
  Tensor forward(Tensor image) { return fc2(relu(fc1(flatten(image, 1)))); }
};

struct Part : Module {
  Linear fc;
  BatchNorm2d norm;
  Part(Module &parent, std::string name, int64_t in)
      : Module(parent, std::move(name)), fc{*this, "fc", in, in}, norm{*this, "norm", in} {}
  Tensor forward(Tensor x) { return dropout(relu(norm(fc(x))), 0.25); }
};

struct Deep : Module {
  ModuleList<Part> parts{*this, "parts", 2, 784};
  Linear head{*this, "head", 784, 10};
  Tensor forward(Tensor image) {
    stage(0);
    Tensor x = parts[0](flatten(image, 1));
    stage(1);
    return head(parts[1](withSharding(x, {"dp", "tp"})));
  }
};

} // namespace

TEST_CASE("a traced model verifies and round-trips") {
  Deep model;
  GraphModule graph = traceModel(makeModel(model), {}, 4);
  CHECK(graph.verify() == "");
  const std::string text = graph.str();
  CHECK(GraphModule::parse(text, "again").str() == text);
}

TEST_CASE("parameters have paths, beginnings and an order") {
  Mlp model;
  std::vector<std::string> paths;
  for (const Parameter *parameter : model.parameters())
    paths.push_back(parameter->path());
  CHECK(paths == std::vector<std::string>{"fc1.weight", "fc1.bias", "fc2.weight"});
  CHECK(model.parameterCount() == 784 * 32 + 32 + 320);
  const std::string text = traced(model);
  CHECK(has(text, "cleave.name = \"fc1.weight\""));
  CHECK(has(text, "tensor<32x784xf32> {cleave.init = #cleave.init<\"uniform\", -0.035714"));
  CHECK(has(text, "cleave.static_weight = 4"));
}

TEST_CASE("ops carry the module path, and free functions that of the module they are called in") {
  Deep model;
  const std::string text = forwardPart(traced(model));
  CHECK(count(text, "cleave.path = \"parts.0.fc\"") == 3); // matmul, broadcast, add
  CHECK(has(text, "cleave.path = \"parts.1\""));           // the relu
  CHECK(has(text, "cleave.path = \"loss\""));
}

TEST_CASE("stages and shardings are marked") {
  Deep model;
  const std::string text = forwardPart(traced(model));
  CHECK(has(text, "cleave.shard_hint"));
  CHECK(has(text, "[\"dp\", \"tp\"]"));
  CHECK(has(text, "cleave.stage = 0"));
  CHECK(has(text, "cleave.path = \"head\", cleave.stage = 1"));
}

TEST_CASE("training moves running statistics and drops out, evaluation does neither") {
  Deep model;
  const std::string text = traced(model);
  CHECK(count(forwardPart(text), "cleave.batch_norm ") == 2);
  CHECK(has(forwardPart(text), "name = \"parts.0/dropout.0\""));
  CHECK(has(forwardPart(text), "name = \"parts.1/dropout.0\""));
  CHECK(count(forwardPart(text), "{cleave.kind = \"buffer\", cleave.name = \"parts.1.norm.running_var\"}") == 1);
  CHECK(!has(evalPart(text), "cleave.batch_norm"));
  CHECK(!has(evalPart(text), "cleave.random_uniform"));
  CHECK(has(evalPart(text), "cleave.rsqrt"));
}

TEST_CASE("tied, frozen and grouped parameters") {
  struct Tied : Module {
    Embedding embed{*this, "embed", 128, 16};
    LayerNorm norm{*this, "norm", 16};
    Tensor forward(Tensor tokens) { return linear(norm(embed(tokens)), embed.weight); }
  } model;
  model.norm.freeze();
  TrainConfig config{.data = Text{.context = 8},
                     .groups = {{.pattern = "embed*", .lrScale = 0.5}, {.pattern = "*.weight", .weightDecay = 0}}};
  const std::string text = traced(model, config);
  CHECK(count(forwardPart(text), "\"embed.weight\"") == 1);
  CHECK(has(text, "cleave.lr_scale = 5.000000e-01"));
  CHECK(count(forwardPart(text), "cleave.trainable") == 1); // the norm is frozen
  CHECK(count(forwardPart(text), "cleave.weight_decay") == 1);
  config.groups = {{.pattern = "nothing.*", .lrScale = 2}};
  CHECK(has(mistake([&] { traced(model, config); }), "nothing.*"));
}

TEST_CASE("a frozen batch norm computes the same in training and evaluation") {
  struct Net : Module {
    BatchNorm2d norm{*this, "norm", 3};
    Linear fc{*this, "fc", 3 * 28 * 28, 10};
    Buffer calls{*this, "calls", {1}};
    Tensor forward(Tensor image) {
      calls.set(calls.tensor() + 1);
      return fc(flatten(norm(expand(image, {-1, 3, -1, -1})), 1));
    }
  } model;
  CHECK(has(forwardPart(traced(model)), "cleave.batch_norm "));
  CHECK(count(forwardPart(traced(model)), "cleave.kind = \"buffer\"") == 6); // three arguments and results
  model.freeze();
  CHECK(!has(forwardPart(traced(model)), "cleave.batch_norm "));
  CHECK(count(forwardPart(traced(model)), "cleave.kind = \"buffer\"") == 3);
}

TEST_CASE("the optimizer is an attribute") {
  Mlp model;
  TrainConfig config{.optimizer = Sgd{.lr = 0.25, .momentum = 0.5, .nesterov = true}, .clipNorm = 1};
  const std::string text = traced(model, config);
  CHECK(has(text, "name = \"sgd\""));
  CHECK(has(text, "momentum = 5.000000e-01"));
  CHECK(has(text, "nesterov = true"));
  CHECK(has(text, "clip_norm = 1.000000e+00"));
}

TEST_CASE("several inputs and a data set of one's own") {
  struct Pairs : Dataset {
    std::vector<DataField> list{
        {"left", FieldType::F32, {6}}, {"right", FieldType::F32, {6}}, {"goal", FieldType::F32, {3}}};
    const std::vector<DataField> &fields() const override { return list; }
    int64_t samples(Split) const override { return 8; }
    void read(Split, int64_t, size_t, std::byte *) const override {}
  };
  struct Two : Module {
    Linear fc{*this, "fc", 6, 3};
    Tensor forward(Tensor left, Tensor right) { return fc(left * right); }
  } model;
  TrainConfig config{.data = std::make_shared<Pairs>(), .loss = mseLoss};
  const std::string text = traced(model, config);
  CHECK(has(text, "cleave.name = \"right\""));
  CHECK(has(text, "cleave.static_weight = 12"));
  CHECK(!has(text, "\"correct\""));
  Mlp one;
  CHECK(has(mistake([&] { traced(one, config); }), "the data set gives the model 2 tensors"));
}

TEST_CASE("a model takes up to 16 inputs") {
  struct Many : Dataset {
    std::vector<DataField> list;
    explicit Many(int inputs) {
      for (int i = 0; i < inputs; ++i)
        list.push_back({"x" + std::to_string(i), FieldType::F32, {3}});
      list.push_back({"goal", FieldType::F32, {3}});
    }
    const std::vector<DataField> &fields() const override { return list; }
    int64_t samples(Split) const override { return 8; }
  };
  const auto trace = [](auto &model, int inputs) {
    return traced(model, TrainConfig{.data = std::make_shared<Many>(inputs), .loss = mseLoss});
  };
  struct Five : Module {
    Tensor forward(Tensor a, Tensor b, Tensor c, Tensor d, Tensor e) { return a + b + c + d + e; }
  } five;
  CHECK(count(forwardPart(trace(five, 5)), "cleave.kind = \"input\"") == 6);
  const std::string wrong = mistake([&] { trace(five, 4); });
  CHECK((has(wrong, "gives the model 4 tensors") && has(wrong, "no forward of that many") && !has(wrong, "at most")));
  CHECK(has(mistake([&] { trace(five, 17); }), "no forward of that many; a forward takes at most 16"));
  using T = Tensor;
  struct Sixteen : ModuleOf<std::pair<Tensor, Tensor>> {
    std::pair<T, T> forward(T a, T, T, T, T, T, T, T, T, T, T, T, T, T, T, T p) { return {a, p}; }
  } sixteen;
  Model model = makeModel(sixteen);
  TrainConfig config{
      .data = std::make_shared<Many>(16),
      .loss = [](std::span<const Tensor> p, std::span<const Tensor> t) { return mseLoss(p[0] + p[1], t[0]); }};
  CHECK(count(forwardPart(traceModel(model, config, 4).str()), "cleave.kind = \"input\"") == 17);
}

TEST_CASE("a loss of one's own") {
  Mlp model;
  TrainConfig config{.loss = [](Tensor logits, Tensor labels) {
    Loss loss = crossEntropy(logits, labels);
    loss.sum = loss.sum * 2.0;
    return loss;
  }};
  CHECK(count(forwardPart(traced(model, config)), "cleave.mul") == 1);
}

TEST_CASE("every function traces and keeps its shape") {
  Lambda model([](Lambda &, Tensor image) {
    Tensor x = reshape(image, {4, 28, 28});
    CHECK(matmul(x, x).shape() == Shape{4, 28, 28});
    CHECK(matmul(select(x, 0, 0), x).shape() == Shape{4, 28, 28});
    CHECK(matmul(x, select(x, 0, -1)).shape() == Shape{4, 28, 28});
    CHECK(softmax(x).shape() == x.shape());
    CHECK(logSoftmax(x, 1).shape() == x.shape());
    CHECK(sum(x).shape() == Shape{});
    CHECK(mean(x, {-1}).shape() == Shape{4, 28});
    CHECK(max(x, {0, 2}, true).shape() == Shape{1, 28, 1});
    CHECK(min(x, {1}).shape() == Shape{4, 28});
    CHECK(permute(x, {2, 0, 1}).shape() == Shape{28, 4, 28});
    CHECK(transpose(image, 0, -1).shape() == Shape{28, 1, 28, 4});
    CHECK(slice(x, 1, 2, -2).shape() == Shape{4, 24, 28});
    CHECK(concat({x, x}, 2).shape() == Shape{4, 28, 56});
    CHECK(unsqueeze(x, -1).shape() == Shape{4, 28, 28, 1});
    CHECK(squeeze(image, 1).shape() == Shape{4, 28, 28});
    CHECK(cast(x, DType::I32).dtype() == DType::I32);
    CHECK(gather(cast(arange(6), DType::I32), 0, arange(3)).shape() == Shape{3});
    CHECK(full({2, 3}, 1.5).shape() == Shape{2, 3});
    CHECK(avgPool2d(image, 2).shape() == Shape{4, 1, 14, 14});
    CHECK(maxPool2d(image, 3, {.stride = 2, .padding = 1}).shape() == Shape{4, 1, 14, 14});
    CHECK(globalAvgPool(image).shape() == Shape{4, 1});
    CHECK(scaledDotProductAttention(image, image, image, {.causal = true}).shape() == image.shape());
    CHECK((x + mean(x, {0}, true)).shape() == x.shape());
    CHECK((1.0 / exp(x) - 2 * sqrt(abs(x))).shape() == x.shape());
    CHECK((arange(3) + 1).dtype() == DType::I32);
    CHECK(maximum(x, 0).shape() == x.shape());
    CHECK(pow(x, 2).shape() == x.shape());
    for (Tensor y : {relu(x), gelu(x), gelu(x, Gelu::Tanh), silu(x), tanh(x), sigmoid(x), log(x), rsqrt(x), erf(x), -x,
                     dropout(x, 0.1)})
      CHECK(y.shape() == x.shape());
    x += 1.0;
    return tenLogits(x);
  });
  const std::string text = traced(model);
  CHECK(GraphModule::parse(text, "again").str() == text);
}

TEST_CASE("grouped, strided and dilated convolutions") {
  struct Convs : Module {
    Conv2d a{*this, "a", 1, 8, {.kernel = 5, .stride = 2, .padding = 2}};
    Conv2d b{*this, "b", 8, 8, {.kernel = {3, 1}, .padding = {1, 0}, .groups = 4, .bias = false}};
    Conv2d c{*this, "c", 8, 8, {.kernel = 3, .dilation = 2}};
    Linear fc{*this, "fc", 8, 10};
    Tensor forward(Tensor image) {
      Tensor x = a(image);
      CHECK(x.shape() == Shape{4, 8, 14, 14});
      x = b(x);
      CHECK(x.shape() == Shape{4, 8, 14, 14});
      x = c(x);
      CHECK(x.shape() == Shape{4, 8, 10, 10});
      return fc(globalAvgPool(x));
    }
  } model;
  CHECK(model.b.weight.shape() == Shape{8, 2, 3, 1});
  CHECK(has(traced(model), "groups = 4"));
}

TEST_CASE("beginnings are PyTorch's") {
  CHECK(init::kaimingUniform(std::sqrt(5.0)).resolve({512, 784}).b == Approx(1 / std::sqrt(784.0)));
  CHECK(init::kaimingNormal().resolve({16, 8, 3, 3}).b == Approx(std::sqrt(2.0 / 72)));
  CHECK(init::kaimingNormal(0, true).resolve({16, 8, 3, 3}).b == Approx(std::sqrt(2.0 / 144)));
  CHECK(init::xavierUniform().resolve({10, 20}).b == Approx(std::sqrt(6.0 / 30)));
  CHECK(init::xavierNormal().resolve({10, 20}).b == Approx(std::sqrt(2.0 / 30)));
}
