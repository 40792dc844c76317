// Mistakes in models: the message has the source position, rule and values, and shows the user's line.
#include "frontend/program/Advice.h"
#include "tests/unit/frontend/Support.h"

using namespace cleave;
using namespace cleave::test;

namespace {

std::string wrong(std::function<Tensor(Lambda &, Tensor)> body) {
  Lambda model(std::move(body));
  return mistake([&] { traced(model); });
}

} // namespace

TEST_CASE("a wrong shape shows the line with a caret") {
  struct Wrong : Module {
    Linear fc1{*this, "fc1", 784, 512}, fc2{*this, "fc2", 1024, 10};
    Tensor forward(Tensor image) {
      return fc2(relu(fc1(flatten(image, 1)))); // the line of the message
    }
  } model;
  const unsigned line = __LINE__ - 3;
  const std::string message = mistake([&] { traced(model); });
  CHECK(has(message, "MistakeTest.cpp:" + std::to_string(line) +
                         ":14: error: linear: the input's last dimension is 512, "
                         "fc2 expects 1024 (rule linear C2)\n"));
  CHECK(has(message, "\n  return fc2(relu(fc1(flatten(image, 1)))); // the line of the message\n         ^\n"));
  CHECK(has(message, "\n  input: tensor<4x512xf32>   fc2.weight: 10x1024"));
}

TEST_CASE("rules name themselves") {
  CHECK(has(wrong([](auto &, Tensor x) { return matmul(x, slice(x, 2, 0, 3)); }), "rule matmul C2"));
  CHECK(has(wrong([](auto &, Tensor x) { return x + full({3}, 1); }), "rule add C2"));
  CHECK(has(wrong([](auto &, Tensor x) { return x * arange(28); }), "rule mul C1"));
  CHECK(has(wrong([](auto &, Tensor x) { return reshape(x, {3, -1}); }), "rule reshape C1"));
  CHECK(has(wrong([](auto &, Tensor x) { return reshape(x, {-1, -1}); }), "rule reshape C2"));
  CHECK(has(wrong([](auto &, Tensor x) { return permute(x, {0, 1, 1, 2}); }), "rule permute C1"));
  CHECK(has(wrong([](auto &, Tensor x) { return slice(x, 2, 20, 40); }), "rule slice C2"));
  CHECK(has(wrong([](auto &, Tensor x) { return sum(x, {4}); }), "rule sum C1"));
  CHECK(has(wrong([](auto &, Tensor x) { return softmax(x, 7); }), "rule softmax C1"));
  CHECK(has(wrong([](auto &, Tensor x) { return concat({x, flatten(x)}, 0); }), "rule concat C3"));
  CHECK(has(wrong([](auto &, Tensor x) { return concat({}, 0); }), "rule concat C1"));
  CHECK(has(wrong([](auto &, Tensor x) { return maxPool2d(x, 2, {.padding = 2}); }), "rule maxPool2d C3"));
  CHECK(has(wrong([](auto &, Tensor x) { return avgPool2d(x, 40); }), "rule avgPool2d C2"));
  CHECK(has(wrong([](auto &, Tensor x) { return dropout(x, 1.0); }), "rule dropout C1"));
  CHECK(has(wrong([](auto &, Tensor x) { return embedding(x, full({4, 4}, 0)); }), "rule embedding C2"));
  CHECK(has(wrong([](auto &, Tensor x) { return scaledDotProductAttention(x, slice(x, 3, 0, 2), x); }), "C2"));
  CHECK(has(wrong([](auto &, Tensor x) { return withSharding(x, {"dp"}); }), "rule withSharding C1"));
  CHECK(has(wrong([](auto &, Tensor x) { return withSharding(x, {"dp", "", "", "xp"}); }), "found \"xp\""));
  CHECK(has(wrong([](auto &, Tensor x) { return withSharding(x, {"", "pp", "", "whole"}); }), "found \"pp\""));
  CHECK(has(wrong([](auto &, Tensor x) {
              stage(2);
              stage(1);
              return x;
            }),
            "rule stage C1"));
  CHECK(has(wrong([](auto &, Tensor x) { return relu(arange(3)); }), "rule relu C1"));
  CHECK(has(wrong([](auto &, Tensor x) { return flatten(x); }), "rule crossEntropy C1"));
}

TEST_CASE("names must be new and plain") {
  struct Twice : Module {
    Linear a{*this, "fc", 4, 4}, b{*this, "fc", 4, 4};
  };
  CHECK(has(mistake([] { Twice twice; }), "\"fc\" is already taken"));
  struct Dotted : Module {
    Linear a{*this, "a.b", 4, 4};
  };
  CHECK(has(mistake([] { Dotted dotted; }), "\"a.b\""));
  struct Empty : Module {
    Linear a{*this, "a", 0, 4};
  };
  CHECK(has(mistake([] { Empty empty; }), "rule parameter C1"));
  struct Huge : Module {
    Linear a{*this, "a", int64_t(1) << 40, int64_t(1) << 40};
  };
  CHECK(has(mistake([] { Huge huge; }), "rule parameter C1"));
}

TEST_CASE("ops outside of a trace are refused") {
  CHECK(has(mistake([] { arange(3); }), "called outside a trace"));
}

TEST_CASE("a module without forward says so") {
  struct Silent : Module {
    using Module::Module;
  };
  struct Root : Module {
    Silent silent{*this, "silent"};
    Tensor forward(Tensor x) { return silent(x); }
  } model;
  CHECK(has(mistake([&] { traced(model); }), "silent: the module defines no forward of 1 tensor"));
}

TEST_CASE("what forward makes is refused, with the way out") {
  const auto refused = [](auto make, const char *what) {
    const std::string text = wrong([&](auto &model, Tensor x) {
      make(model);
      return tenLogits(x);
    });
    CHECK((has(text, what) && has(text, "make it a member of the module") && has(text, "MistakeTest.cpp:")));
  };
  refused([](Module &model) { Linear fc(model, "fc", 784, 10); }, "fc: a module is made inside forward");
  refused([](Module &model) { Parameter scale(model, "scale", {10}); }, "scale: a parameter is made inside forward");
  refused([](Module &model) { Buffer seen(model, "seen", {10}); }, "seen: a buffer is made inside forward");
  refused([](Module &) { Module other; }, "a module is made inside forward");
  Lambda afterwards([](Lambda &, Tensor x) { return tenLogits(x); });
  traced(afterwards);
  Linear late(afterwards, "late", 4, 4); // not inside forward
}

TEST_CASE("exceptions of forward and of the loss are the user's") {
  CHECK(has(wrong([](auto &, Tensor x) -> Tensor {
              throw std::out_of_range("no such layer");
              return x;
            }),
            "forward: no such layer"));
  Lambda model([](Lambda &, Tensor x) { return tenLogits(x); });
  TrainConfig config{.loss = [](Tensor, Tensor) -> Loss { throw 1; }};
  CHECK(has(mistake([&] { traced(model, config); }), "loss: an exception that is not derived from std::exception"));
}

TEST_CASE("parameters of another model are refused") {
  Module other;
  Parameter weight{other, "weight", {10, 784}};
  CHECK(
      has(wrong([&](auto &, Tensor x) { return linear(flatten(x, 1), weight); }), "weight: belongs to another model"));
}

TEST_CASE("a tensor that holds none is refused by whoever is given it, at the user's line") {
  const std::string none = "the Tensor is empty";
  const Tensor nothing;
  CHECK(has(wrong([=](auto &, Tensor) { return relu(nothing); }), "relu: " + none));
  CHECK(has(wrong([=](auto &, Tensor) { return transpose(nothing, 0, 1); }), "transpose: " + none));
  CHECK(has(wrong([=](auto &, Tensor) { return flatten(nothing, 1); }), none));
  CHECK(has(wrong([=](auto &, Tensor) { return mean(nothing); }), "mean: " + none));
  CHECK(has(wrong([=](auto &, Tensor) { return unsqueeze(nothing, 0); }), "unsqueeze: " + none));
  CHECK(has(wrong([=](auto &, Tensor x) { return matmul(x, nothing); }), "matmul: " + none));
  CHECK(has(wrong([=](auto &, Tensor x) { return concat({x, nothing}, 0); }), "concat: " + none));
  CHECK(has(wrong([=](auto &, Tensor x) { return x + nothing; }), none)); // an empty tensor is not read as the number 0
  CHECK(has(wrong([=](auto &, Tensor x) { return nothing * x; }), none));
  CHECK(has(wrong([=](auto &, Tensor) { return globalAvgPool(nothing); }), "globalAvgPool: " + none));
  CHECK(has(wrong([=](auto &, Tensor x) { return nothing.rank() > 0 ? x : x; }), "rank: " + none));
  CHECK(has(wrong([=](auto &, Tensor) { return nothing; }), "the model returned no tensor"));
  struct Wrong : Module {
    Linear out{*this, "out", 784, 10};
    Tensor forward(Tensor) { return out(Tensor()); }
  } model;
  const unsigned line = __LINE__ - 2;
  CHECK(
      has(mistake([&] { traced(model); }), "MistakeTest.cpp:" + std::to_string(line) + ":37: error: linear: " + none));
}

TEST_CASE("a tensor kept from an earlier trace is refused") {
  struct Keeps : Module {
    Linear fc{*this, "fc", 784, 10};
    Tensor mask;
    Tensor forward(Tensor image) {
      if (!mask.defined())
        mask = full({10}, 0.5);
      return fc(flatten(image, 1)) * mask;
    }
  } model;
  const unsigned line = __LINE__ - 3;
  const std::string message = mistake([&] { traced(model); });
  CHECK(has(message, "MistakeTest.cpp:" + std::to_string(line)));
  CHECK(has(message, "the tensor belongs to an earlier trace"));
}

TEST_CASE("modules that the standard library makes are told with the user's line") {
  struct Optional : Module {
    std::optional<Linear> fc;
    Optional() { fc.emplace(*this, "fc", 0, 4); }
  };
  CHECK(has(mistake([] { Optional model; }), "MistakeTest.cpp:" + std::to_string(__LINE__ - 2) + ":"));
  struct Pointer : Module {
    std::unique_ptr<Conv2d> conv;
    Pointer() { conv = std::make_unique<Conv2d>(*this, "conv", 3, 4, Conv2dOptions{.groups = 2}); }
  };
  CHECK(has(mistake([] { Pointer model; }), "MistakeTest.cpp:" + std::to_string(__LINE__ - 2) + ":"));
  struct List : Module {
    ModuleList<Linear> layers{*this, "layers"};
    List() {
      layers.emplace(4, 4);
      layers.emplace(4, 0); // the line of the message
    }
  };
  CHECK(has(mistake([] { List model; }), "MistakeTest.cpp:" + std::to_string(__LINE__ - 3) + ":14: error: parameter"));
}

TEST_CASE("ops of a list's modules stand where the list was called") {
  struct Net : Module {
    ModuleList<Linear> layers{*this, "layers"};
    Net() {
      layers.emplace(784, 4);
      layers.emplace(5, 10);
    }
    Tensor forward(Tensor image) { return layers(flatten(image, 1)); }
  } model;
  const unsigned line = __LINE__ - 2;
  CHECK(has(mistake([&] { traced(model); }), "MistakeTest.cpp:" + std::to_string(line) + ":43: error: linear"));
}

TEST_CASE("an index that a list of modules does not have is told with its line") {
  struct Net : Module {
    ModuleList<Linear> layers{*this, "layers", 2, 784, 10};
    Sequential steps{*this, "steps", layer<Linear>(4, 4)};
    int64_t at = 2;
    Tensor forward(Tensor image) {
      Module *step = steps[0];
      step = at < 0 ? steps[at] : step;
      return layers[at](flatten(image, 1));
    }
  } model;
  const unsigned line = __LINE__ - 3;
  std::string message = mistake([&] { traced(model); });
  CHECK(has(message, "MistakeTest.cpp:" + std::to_string(line) + ":"));
  CHECK(has(message, "layers has 2 modules, counted from 0: there is no [2]"));
  model.at = -1;
  message = mistake([&] { traced(model); });
  CHECK(has(message, "MistakeTest.cpp:" + std::to_string(line - 1) + ":"));
  CHECK(has(message, "steps has 1 modules, counted from 0: there is no [-1]"));
}

TEST_CASE("a model that takes no tensors is told where it is run") {
  struct Silent : Module {
    Tensor forward() { return full({4, 10}, 0); }
  } model;
  const unsigned line = __LINE__ + 1;
  const std::string message = mistake([&] { traced(model, TrainConfig{.batch = 4}); });
  CHECK(has(message, "MistakeTest.cpp:" + std::to_string(line) + ":"));
  CHECK(has(message, "the data set gives the model 1 tensor"));
}

TEST_CASE("sizes that no memory holds are refused where they arise") {
  const int64_t large = int64_t(1) << 21;
  CHECK(has(wrong([=](auto &, Tensor) { return full({large, large}, 1); }), "more than 2^40 elements"));
  CHECK(has(wrong([=](auto &, Tensor) { return full({large, large, large, large}, 1); }), "MistakeTest.cpp"));
  struct Large : Module {
    Linear fc;
    Large() : fc(*this, "fc", int64_t(1) << 20, int64_t(1) << 19) {}
  } model;
  const unsigned line = __LINE__ - 2;
  const std::string message = mistake([&] { checkParametersFit(model); });
  CHECK(has(message, "MistakeTest.cpp:" + std::to_string(line)));
  CHECK(has(message, "the largest is fc.weight"));
}

TEST_CASE("what is surely not meant is warned of") {
  struct Net : Module {
    Linear used{*this, "used", 784, 10}, spare{*this, "spare", 4, 4};
    Tensor forward(Tensor image) { return used(flatten(image, 1)); }
  } model;
  const auto warnings = [&](TrainConfig config) {
    GraphModule graph = traceModel(makeModel(model), config, 4);
    return warningsOf(graph, fieldsOf(config.data));
  };
  CHECK(warnings({}) ==
        std::vector<std::string>{"parameters spare.weight, spare.bias: the loss has no gradient for them, so there is "
                                 "no update (no decay, no momentum)"});
  model.freeze();
  const LossFunction alone = [](Tensor x, Tensor) { return Loss{sum(x), full({}, 4), {}, 4}; };
  const std::vector<std::string> all = warnings({.loss = alone});
  REQUIRE(all.size() == 2);
  CHECK(has(all[0], "data field label: the loss does not depend on it"));
  CHECK(has(all[1], "every parameter is frozen"));

  const Precision bf16{.type = Precision::Type::Bf16, .level = 2}, fp16{.type = Precision::Type::Fp16, .level = 1};
  CHECK(has(warningOf(bf16, Target::X86_64_v3), "x86-64-v3 has no products in bf16"));
  CHECK(has(warningOf(fp16, Target::X86_64_v4), "x86-64-v4 has no products in fp16"));
  CHECK(warningOf(bf16, Target::X86_64_v4).empty());
  CHECK(warningOf(fp16, Target::Sm80).empty());
  CHECK(warningOf({}, Target::X86_64_v3).empty());
}
