// Mistakes in models: the message names place, rule and values, and shows the user's line.
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
  CHECK(has(mistake([] { arange(3); }), "while no model is traced"));
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

TEST_CASE("parameters of another model are refused") {
  Module other;
  Parameter weight{other, "weight", {10, 784}};
  CHECK(
      has(wrong([&](auto &, Tensor x) { return linear(flatten(x, 1), weight); }), "weight: belongs to another model"));
}
