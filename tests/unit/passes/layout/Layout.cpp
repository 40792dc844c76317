// Channels last: which ops change, where transposes remain, and unchanged values and gradients.
#include "passes/layout/Layout.h"

#include "ir/graph/Graph.h"
#include "passes/decompose/Decompose.h"
#include "passes/differentiate/Differentiate.h"
#include "passes/simplify/Simplify.h"
#include "tests/unit/passes/Programs.h"

#include <catch2/catch.hpp>
#include <cmath>

using namespace cleave;
using namespace cleave::testing;

namespace {

GraphModule turned(const GraphModule &module) {
  GraphModule last = module.clone();
  passes::useChannelsLast(last.module());
  REQUIRE(last.verify().empty());
  return last;
}

/// Numbers without a pattern that a transpose could leave unchanged.
Array numbers(std::vector<int64_t> shape, double seed) {
  Array array{std::move(shape), {}};
  int64_t count = 1;
  for (int64_t size : array.shape)
    count *= size;
  for (int64_t i = 0; i < count; ++i)
    array.data.push_back(std::sin(seed + 1.7 * static_cast<double>(i) + 0.01 * static_cast<double>(i * i)));
  return array;
}

/// Compares loss and gradients of the plain and the channels-last program, the latter both as traced and decomposed.
void sameNumbers(const GraphModule &module, const Arrays &arguments) {
  GraphModule plain = module.clone(), last = turned(module);
  passes::differentiate(plain.module(), 1);
  passes::differentiate(last.module(), 1);
  GraphModule parts = last.clone();
  passes::decompose(parts.module());
  passes::simplify(parts.module());
  REQUIRE(parts.verify().empty());
  const Arrays expected = evaluate(plain, "train", arguments);
  for (const GraphModule *form : {&last, &parts})
    for (const auto &[key, value] : evaluate(*form, "train", arguments)) {
      INFO(key);
      CHECK(apart(value, expected.at(key)) < 2e-6);
    }
}

const char *network = R"(
  %a = cleave.conv2d %x, %w {stride = array<i64: 1, 1>, padding = array<i64: 1, 1, 1, 1>, dilation = array<i64: 1, 1>, groups = 1 : i64} : (tensor<4x3x6x8xf32>, tensor<6x3x3x3xf32>) -> tensor<4x6x6x8xf32>
  %bb = cleave.broadcast %b dims [1] : tensor<6xf32> -> tensor<4x6x6x8xf32>
  %c = cleave.add %a, %bb : tensor<4x6x6x8xf32>
  %n, %mean, %variance = cleave.batch_norm %c, %g, %b {eps = 1.000000e-05 : f64, group = 2 : i64} : (tensor<4x6x6x8xf32>, tensor<6xf32>, tensor<6xf32>) -> (tensor<4x6x6x8xf32>, tensor<2x6xf32>, tensor<2x6xf32>)
  %r = cleave.relu %n : tensor<4x6x6x8xf32>
  %p, %places = cleave.max_pool2d %r {kernel = array<i64: 2, 2>, stride = array<i64: 2, 2>, padding = array<i64: 0, 0, 0, 0>} : (tensor<4x6x6x8xf32>) -> (tensor<4x6x3x4xf32>, tensor<4x6x3x4xi32>)
  %d = cleave.concat %p, %p {dim = 1 : i64} : (tensor<4x6x3x4xf32>, tensor<4x6x3x4xf32>) -> tensor<4x12x3x4xf32>
  %e = cleave.slice %d starts [0, 4, 1, 0] sizes [4, 6, 2, 4] : tensor<4x12x3x4xf32> -> tensor<4x6x2x4xf32>
  %f = cleave.pad %e low [0, 0, 1, 0] high [0, 2, 0, 1] : tensor<4x6x2x4xf32> -> tensor<4x8x3x5xf32>
  %h = cleave.shard_hint %f ["dp", "", "", "whole"] : tensor<4x8x3x5xf32>
  %v = cleave.avg_pool2d %h {kernel = array<i64: 2, 2>, stride = array<i64: 1, 1>, padding = array<i64: 0, 0, 0, 0>} : (tensor<4x8x3x5xf32>) -> tensor<4x8x2x4xf32>
  %s = cleave.reduce sum %v dims [2, 3] : tensor<4x8x2x4xf32> -> tensor<4x8xf32>
  %q = cleave.mul %s, %s : tensor<4x8xf32>)";

GraphModule module(const std::string &end) {
  return forwardModule(parameter("x", "tensor<4x3x6x8xf32>") + ", " + parameter("w", "tensor<6x3x3x3xf32>") + ", " +
                           parameter("b", "tensor<6xf32>") + ", " + parameter("g", "tensor<6xf32>"),
                       network + end);
}

const Arrays arguments{{"parameter:x", numbers({4, 3, 6, 8}, 0.1)},
                       {"parameter:w", numbers({6, 3, 3, 3}, 0.2)},
                       {"parameter:b", numbers({6}, 0.3)},
                       {"parameter:g", numbers({6}, 0.4)}};

const char *total = R"(
  %loss = cleave.reduce sum %q dims [0, 1] : tensor<4x8xf32> -> tensor<f32>)";

} // namespace

TEST_CASE("every convolution of PyTorch's goldens computes the same channels last", "[layout]") {
  int seen = 0;
  for (const auto &example : golden("ops.json")) {
    std::string name = example["name"];
    GraphModule whole = GraphModule::parse(example["ir"], name);
    if (countOps(whole, "forward", "cleave.conv2d") == 0)
      continue;
    ++seen;
    DYNAMIC_SECTION(name) { sameNumbers(whole, argumentsOf(example)); }
  }
  CHECK(seen > 3);
}

TEST_CASE("what follows a convolution follows it channels last", "[layout]") {
  GraphModule plain = module(total), last = turned(plain);
  passes::simplify(last.module());
  auto forward = last.module().lookupSymbol<mlir::func::FuncOp>("forward");
  for (mlir::Operation &op : forward.front().without_terminator())
    if (mlir::isa<ir::Conv2dOp, ir::BatchNormOp, ir::MaxPool2dOp, ir::AvgPool2dOp>(op))
      CHECK(op.hasAttr(ir::channelsLast));
  CHECK(countOps(last, "forward", "cleave.transpose") == 2); // of the image and of the weight
  sameNumbers(plain, arguments);
}

TEST_CASE("sequences and flattened images are channels last, too", "[layout]") {
  // A 1-D convolution between transposes, as in a model of sequences [n, t, c]: pad, reshape to [n, c, 1, t], back.
  GraphModule plain = forwardModule(parameter("x", "tensor<2x9x3xf32>") + ", " + parameter("w", "tensor<3x3x2xf32>") +
                                        ", " + parameter("g", "tensor<3xf32>"),
                                    R"(
  %t = cleave.transpose %x permutation [0, 2, 1] : tensor<2x9x3xf32> -> tensor<2x3x9xf32>
  %i = cleave.reshape %t : tensor<2x3x9xf32> -> tensor<2x3x1x9xf32>
  %k = cleave.reshape %w : tensor<3x3x2xf32> -> tensor<3x3x1x2xf32>
  %a = cleave.conv2d %i, %k {stride = array<i64: 1, 1>, padding = array<i64: 0, 0, 0, 0>, dilation = array<i64: 1, 1>, groups = 1 : i64} : (tensor<2x3x1x9xf32>, tensor<3x3x1x2xf32>) -> tensor<2x3x1x8xf32>
  %r = cleave.reshape %a : tensor<2x3x1x8xf32> -> tensor<2x3x8xf32>
  %p = cleave.pad %r low [0, 0, 1] high [0, 0, 0] : tensor<2x3x8xf32> -> tensor<2x3x9xf32>
  %n, %mean, %variance = cleave.batch_norm %p, %g, %g {eps = 1.000000e-05 : f64} : (tensor<2x3x9xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<2x3x9xf32>, tensor<3xf32>, tensor<3xf32>)
  %s = cleave.add %n, %t : tensor<2x3x9xf32>
  %f = cleave.reshape %s : tensor<2x3x9xf32> -> tensor<2x3x3x3xf32>
  %m = cleave.mul %f, %f : tensor<2x3x3x3xf32>
  %h = cleave.reshape %m : tensor<2x3x3x3xf32> -> tensor<2x3x9xf32>
  %y = cleave.transpose %h permutation [0, 2, 1] : tensor<2x3x9xf32> -> tensor<2x9x3xf32>
  %q = cleave.mul %y, %x : tensor<2x9x3xf32>
  %loss = cleave.reduce sum %q dims [0, 1, 2] : tensor<2x9x3xf32> -> tensor<f32>)");
  GraphModule last = turned(plain);
  passes::simplify(last.module());
  CHECK(countOps(last, "forward", "cleave.transpose") == 1); // of the weight
  sameNumbers(plain, {{"parameter:x", numbers({2, 9, 3}, 0.1)},
                      {"parameter:w", numbers({3, 3, 2}, 0.2)},
                      {"parameter:g", numbers({3}, 0.3)}});
}

TEST_CASE("what needs the old order gets it by a transpose", "[layout]") {
  SECTION("flattened") {
    GraphModule plain = module(R"(
  %y = cleave.reshape %v : tensor<4x8x2x4xf32> -> tensor<4x64xf32>
  %z = cleave.mul %y, %y : tensor<4x64xf32>
  %loss = cleave.reduce sum %z dims [0, 1] : tensor<4x64xf32> -> tensor<f32>)");
    GraphModule last = turned(plain);
    passes::simplify(last.module());
    CHECK(countOps(last, "forward", "cleave.transpose") == 3);
    sameNumbers(plain, arguments);
  }
  SECTION("what is left of a reduction is in another order") {
    GraphModule plain = module(R"(
  %y = cleave.reduce sum %v dims [0] : tensor<4x8x2x4xf32> -> tensor<8x2x4xf32>
  %z = cleave.mul %y, %y : tensor<8x2x4xf32>
  %loss = cleave.reduce sum %z dims [0, 1, 2] : tensor<8x2x4xf32> -> tensor<f32>)");
    sameNumbers(plain, arguments);
  }
  SECTION("a broadcast whose dimensions cross") {
    GraphModule plain = module(R"(
  %y = cleave.reduce sum %v dims [0, 3] : tensor<4x8x2x4xf32> -> tensor<8x2xf32>
  %k = cleave.broadcast %y dims [1, 2] : tensor<8x2xf32> -> tensor<4x8x2x4xf32>
  %z = cleave.mul %v, %k : tensor<4x8x2x4xf32>
  %loss = cleave.reduce sum %z dims [0, 1, 2, 3] : tensor<4x8x2x4xf32> -> tensor<f32>)");
    GraphModule last = turned(plain);
    passes::simplify(last.module());
    for (mlir::Operation &op : last.module().lookupSymbol<mlir::func::FuncOp>("forward").front())
      if (auto transpose = mlir::dyn_cast<ir::TransposeOp>(op))
        CHECK_FALSE(
            transpose.getInput().getDefiningOp<ir::BroadcastOp>()); // its operand is transposed, which is smaller
    sameNumbers(plain, arguments);
  }
}

TEST_CASE("a pool without a convolution is channels last, too", "[layout]") {
  GraphModule plain = forwardModule(parameter("x", "tensor<2x4x4x3xf32>"), R"(
  %t = cleave.transpose %x permutation [0, 3, 1, 2] : tensor<2x4x4x3xf32> -> tensor<2x3x4x4xf32>
  %p, %places = cleave.max_pool2d %t {kernel = array<i64: 2, 2>, stride = array<i64: 2, 2>, padding = array<i64: 0, 0, 0, 0>} : (tensor<2x3x4x4xf32>) -> (tensor<2x3x2x2xf32>, tensor<2x3x2x2xi32>)
  %q = cleave.mul %p, %p : tensor<2x3x2x2xf32>
  %loss = cleave.reduce sum %q dims [0, 1, 2, 3] : tensor<2x3x2x2xf32> -> tensor<f32>)");
  GraphModule last = turned(plain);
  passes::simplify(last.module());
  CHECK(countOps(last, "forward", "cleave.transpose") == 0);
  sameNumbers(plain, {{"parameter:x", numbers({2, 4, 4, 3}, 0.1)}});
}

TEST_CASE("a model without windows stays as it is", "[layout]") {
  GraphModule plain = forwardModule(parameter("x", "tensor<2x3x4x4xf32>"), R"(
  %t = cleave.transpose %x permutation [0, 2, 3, 1] : tensor<2x3x4x4xf32> -> tensor<2x4x4x3xf32>
  %loss = cleave.reduce sum %t dims [0, 1, 2, 3] : tensor<2x4x4x3xf32> -> tensor<f32>)");
  CHECK(opNames(turned(plain), "forward") == opNames(plain, "forward"));
}
