// Compares the reference interpreter with values computed by hand.
#include "ir/interpreter/Philox.h"
#include "runtime/base/Error.h"
#include "tests/unit/ir/Ir.h"

#include <cmath>

using namespace cleave;
using namespace cleave::ir;

static HostTensor unary(const std::string &op, const HostTensor &input, const std::string &more = "") {
  std::string type = "tensor<" + std::to_string(input.size()) + "x" + dtypeName(input.dtype) + ">";
  return run("func.func @f(%x: " + type + ") -> " + type + " { %0 = cleave." + op + " %x " + more + " : " + type +
                 " return %0 : " + type + " }",
             {input})[0];
}

static HostTensor binary(const std::string &op, const HostTensor &x, const HostTensor &y) {
  std::string type = "tensor<" + std::to_string(x.size()) + "x" + dtypeName(x.dtype) + ">";
  return run("func.func @f(%x: " + type + ", %y: " + type + ") -> " + type + " { %0 = cleave." + op +
                 " %x, %y : " + type + " return %0 : " + type + " }",
             {x, y})[0];
}

TEST_CASE("unary ops") {
  HostTensor x = f32({4}, {-2, -0.5, 0, 3});
  CHECK(unary("neg", x) == f32({4}, {2, 0.5, 0, -3}));
  CHECK(unary("abs", x) == f32({4}, {2, 0.5, 0, 3}));
  CHECK(unary("relu", x) == f32({4}, {0, 0, 0, 3}));
  CHECK(unary("sqrt", f32({2}, {4, 2})) == f32({2}, {2, std::sqrt(2.0)}));
  CHECK(unary("rsqrt", f32({2}, {4, 16})) == f32({2}, {0.5, 0.25}));
  requireClose(unary("exp", x), {0.135335283, 0.60653066, 1, 20.0855369});
  requireClose(unary("log", f32({2}, {1, 10})), {0, 2.302585093});
  requireClose(unary("tanh", x), {-0.96402758, -0.462117157, 0, 0.995054754});
  requireClose(unary("erf", x), {-0.995322265, -0.520499878, 0, 0.999977910});
  requireClose(unary("sin", x), {-0.909297427, -0.479425539, 0, 0.141120008});
  requireClose(unary("cos", x), {-0.416146837, 0.877582562, 1, -0.989992497});
  CHECK(unary("detach", x) == x);
  requireClose(unary("sigmoid", x), {0.119202922, 0.377540669, 0.5, 0.952574127});
  requireClose(unary("silu", x), {-0.238405844, -0.188770334, 0, 2.857722380});
  requireClose(unary("gelu", x), {-0.045500264, -0.154268770, 0, 2.995950305});
  requireClose(unary("gelu", x, "{tanh}"), {-0.045402306, -0.154285990, 0, 2.996362608}, 1e-5);
}

TEST_CASE("binary ops, integers and 16-bit floats") {
  CHECK(binary("add", f32({2}, {1, 2}), f32({2}, {10, 20})) == f32({2}, {11, 22}));
  CHECK(binary("sub", f32({2}, {1, 2}), f32({2}, {10, 20})) == f32({2}, {-9, -18}));
  CHECK(binary("mul", f32({2}, {3, 2}), f32({2}, {10, 20})) == f32({2}, {30, 40}));
  CHECK(binary("div", f32({2}, {1, 2}), f32({2}, {3, 4})) == f32({2}, {1.0 / 3, 0.5}));
  CHECK(binary("div", i32({2}, {-7, 7}), i32({2}, {2, 2})) == i32({2}, {-3, 3}));
  CHECK(binary("max", f32({2}, {1, 5}), f32({2}, {3, 4})) == f32({2}, {3, 5}));
  CHECK(binary("min", f32({2}, {1, 5}), f32({2}, {3, 4})) == f32({2}, {1, 4}));
  CHECK(binary("pow", f32({2}, {2, 9}), f32({2}, {10, 0.5})) == f32({2}, {1024, 3}));
  HostTensor x({1}, DType::BF16, std::vector<double>{1}), tiny({1}, DType::BF16, std::vector<double>{0x1p-9});
  CHECK(binary("add", x, tiny).values[0] == 1);
}

TEST_CASE("compare, select, cast") {
  auto results =
      run(R"(func.func @f(%x: tensor<3xf32>, %y: tensor<3xf32>) -> (tensor<3xf32>, tensor<3xi32>, tensor<3xi1>) {
    %0 = cleave.compare gt %x, %y : tensor<3xf32> -> tensor<3xi1>
    %1 = cleave.select %0, %x, %y : tensor<3xi1>, tensor<3xf32>
    %2 = cleave.cast %x : tensor<3xf32> -> tensor<3xi32>
    %3 = cleave.compare eq %x, %y : tensor<3xf32> -> tensor<3xi1>
    return %1, %2, %3 : tensor<3xf32>, tensor<3xi32>, tensor<3xi1> })",
          {f32({3}, {1.7, -1.7, 2}), f32({3}, {0, 0, 2})});
  CHECK(results[0] == f32({3}, {1.7, 0, 2}));
  CHECK(results[1] == i32({3}, {1, -1, 2}));
  CHECK(results[2] == HostTensor({3}, DType::I1, std::vector<double>{0, 0, 1}));
}

TEST_CASE("shape ops") {
  auto results = run(
      R"(func.func @f(%x: tensor<2x3xf32>) -> (tensor<3x2xf32>, tensor<2x2x3xf32>, tensor<2xf32>, tensor<3xf32>, tensor<f32>, tensor<1x2xf32>, tensor<3x4xf32>, tensor<2x4xf32>) {
    %0 = cleave.transpose %x permutation [1, 0] : tensor<2x3xf32> -> tensor<3x2xf32>
    %1 = cleave.broadcast %x dims [1, 2] : tensor<2x3xf32> -> tensor<2x2x3xf32>
    %2 = cleave.reduce sum %x dims [1] : tensor<2x3xf32> -> tensor<2xf32>
    %3 = cleave.reduce max %x dims [0] : tensor<2x3xf32> -> tensor<3xf32>
    %4 = cleave.reduce min %x dims [0, 1] : tensor<2x3xf32> -> tensor<f32>
    %5 = cleave.slice %x starts [1, 1] sizes [1, 2] : tensor<2x3xf32> -> tensor<1x2xf32>
    %6 = cleave.pad %x low [1, 0] high [0, 1] : tensor<2x3xf32> -> tensor<3x4xf32>
    %7 = cleave.slice %x starts [0, 2] sizes [2, 1] : tensor<2x3xf32> -> tensor<2x1xf32>
    %8 = cleave.concat %7, %x {dim = 1 : i64} : (tensor<2x1xf32>, tensor<2x3xf32>) -> tensor<2x4xf32>
    return %0, %1, %2, %3, %4, %5, %6, %8 : tensor<3x2xf32>, tensor<2x2x3xf32>, tensor<2xf32>, tensor<3xf32>, tensor<f32>, tensor<1x2xf32>, tensor<3x4xf32>, tensor<2x4xf32> })",
      {f32({2, 3}, {1, 2, 3, 4, 5, -6})});
  CHECK(results[0] == f32({3, 2}, {1, 4, 2, 5, 3, -6}));
  CHECK(results[1] == f32({2, 2, 3}, {1, 2, 3, 4, 5, -6, 1, 2, 3, 4, 5, -6}));
  CHECK(results[2] == f32({2}, {6, 3}));
  CHECK(results[3] == f32({3}, {4, 5, 3}));
  CHECK(results[4] == f32({}, {-6}));
  CHECK(results[5] == f32({1, 2}, {5, -6}));
  CHECK(results[6] == f32({3, 4}, {0, 0, 0, 0, 1, 2, 3, 0, 4, 5, -6, 0}));
  CHECK(results[7] == f32({2, 4}, {3, 1, 2, 3, -6, 4, 5, -6}));
}

TEST_CASE("indices and lookups") {
  auto results = run(
      R"(func.func @f(%x: tensor<2x3xf32>, %i: tensor<2x2xi32>, %table: tensor<3x2xf32>, %ids: tensor<4xi32>, %start: tensor<i32>)
      -> (tensor<2x3xi32>, tensor<2x2xf32>, tensor<2x3xf32>, tensor<4x2xf32>, tensor<3x2xf32>) {
    %0 = cleave.iota %start {dim = 1 : i64} : (tensor<i32>) -> tensor<2x3xi32>
    %1 = cleave.gather %x, %i {dim = 1 : i64} : (tensor<2x3xf32>, tensor<2x2xi32>) -> tensor<2x2xf32>
    %2 = cleave.scatter_add %1, %i {dim = 1 : i64} : (tensor<2x2xf32>, tensor<2x2xi32>) -> tensor<2x3xf32>
    %3 = cleave.embedding %table, %ids, %start : (tensor<3x2xf32>, tensor<4xi32>, tensor<i32>) -> tensor<4x2xf32>
    %4 = cleave.embedding_grad %3, %ids, %start : (tensor<4x2xf32>, tensor<4xi32>, tensor<i32>) -> tensor<3x2xf32>
    return %0, %1, %2, %3, %4 : tensor<2x3xi32>, tensor<2x2xf32>, tensor<2x3xf32>, tensor<4x2xf32>, tensor<3x2xf32> })",
      {f32({2, 3}, {1, 2, 3, 4, 5, 6}), i32({2, 2}, {2, 0, 1, 1}), f32({3, 2}, {1, 2, 3, 4, 5, 6}),
       i32({4}, {10, 12, 9, 12}), i32({}, {10})});
  CHECK(results[0] == i32({2, 3}, {10, 11, 12, 10, 11, 12}));
  CHECK(results[1] == f32({2, 2}, {3, 1, 5, 5}));
  CHECK(results[2] == f32({2, 3}, {1, 0, 3, 0, 10, 0}));
  CHECK(results[3] == f32({4, 2}, {1, 2, 5, 6, 0, 0, 5, 6}));
  CHECK(results[4] == f32({3, 2}, {1, 2, 0, 0, 10, 12}));
}

TEST_CASE("matmul with every transposition, batched and shared") {
  HostTensor a = f32({2, 3}, {1, 2, 3, 4, 5, 6}), b = f32({3, 2}, {7, 8, 9, 10, 11, 12});
  HostTensor at = f32({3, 2}, {1, 4, 2, 5, 3, 6}), bt = f32({2, 3}, {7, 9, 11, 8, 10, 12});
  HostTensor product = f32({2, 2}, {58, 64, 139, 154});
  auto multiply = [](const HostTensor &x, const HostTensor &y, const std::string &flags) {
    return run("func.func @f(%a: " + typeText(x) + ", %b: " + typeText(y) +
                   ") -> tensor<2x2xf32> { %0 = cleave.matmul %a, %b " + flags + " : (" + typeText(x) + ", " +
                   typeText(y) + ") -> tensor<2x2xf32> return %0 : tensor<2x2xf32> }",
               {x, y})[0];
  };
  CHECK(multiply(a, b, "") == product);
  CHECK(multiply(at, b, "{transA}") == product);
  CHECK(multiply(a, bt, "{transB}") == product);
  CHECK(multiply(at, bt, "{transA, transB}") == product);
  auto results = run(
      R"(func.func @f(%a: tensor<2x1x2xf32>, %b: tensor<2x2x2xf32>, %s: tensor<2x2xf32>) -> (tensor<2x1x2xf32>, tensor<2x1x2xf32>) {
    %0 = cleave.matmul %a, %b {transB} : (tensor<2x1x2xf32>, tensor<2x2x2xf32>) -> tensor<2x1x2xf32>
    %1 = cleave.matmul %a, %s : (tensor<2x1x2xf32>, tensor<2x2xf32>) -> tensor<2x1x2xf32>
    return %0, %1 : tensor<2x1x2xf32>, tensor<2x1x2xf32> })",
      {f32({2, 1, 2}, {1, 2, 3, 4}), f32({2, 2, 2}, {1, 0, 0, 1, 2, 0, 1, 1}), f32({2, 2}, {1, 2, 3, 4})});
  CHECK(results[0] == f32({2, 1, 2}, {1, 2, 6, 7}));
  CHECK(results[1] == f32({2, 1, 2}, {7, 10, 15, 22}));
}

TEST_CASE("convolution with stride, uneven padding, dilation and groups agrees with its definition") {
  HostTensor x = randomF32({2, 4, 6, 5}, 1), w = randomF32({6, 2, 3, 2}, 2);
  auto found = run(R"(func.func @f(%x: tensor<2x4x6x5xf32>, %w: tensor<6x2x3x2xf32>) -> tensor<2x6x3x5xf32> {
    %0 = cleave.conv2d %x, %w {stride = array<i64: 2, 1>, padding = array<i64: 1, 0, 2, 2>, dilation = array<i64: 2, 2>, groups = 2 : i64}
        : (tensor<2x4x6x5xf32>, tensor<6x2x3x2xf32>) -> tensor<2x6x3x5xf32>
    return %0 : tensor<2x6x3x5xf32> })",
                   {x, w})[0];
  for (int64_t n = 0, at = 0; n < 2; ++n)
    for (int64_t o = 0; o < 6; ++o)
      for (int64_t i = 0; i < 3; ++i)
        for (int64_t j = 0; j < 5; ++j, ++at) {
          double sum = 0;
          for (int64_t c = 0; c < 2; ++c)
            for (int64_t y = 0; y < 3; ++y)
              for (int64_t z = 0; z < 2; ++z) {
                int64_t row = i * 2 - 1 + y * 2, column = j + z * 2;
                if (row >= 0 && row < 6 && column >= 0 && column < 5)
                  sum += x.values[((n * 4 + o / 3 * 2 + c) * 6 + row) * 5 + column] *
                         w.values[((o * 2 + c) * 3 + y) * 2 + z];
              }
          REQUIRE(found.values[at] == Approx(sum).margin(1e-6));
        }
}

TEST_CASE("pooling") {
  auto results = run(
      R"(func.func @f(%x: tensor<1x1x3x3xf32>, %g: tensor<1x1x2x2xf32>) -> (tensor<1x1x2x2xf32>, tensor<1x1x3x3xf32>, tensor<1x1x2x2xf32>, tensor<1x1x3x3xf32>) {
    %0:2 = cleave.max_pool2d %x {kernel = array<i64: 2, 2>, stride = array<i64: 2, 2>, padding = array<i64: 0, 0, 1, 1>} : (tensor<1x1x3x3xf32>) -> (tensor<1x1x2x2xf32>, tensor<1x1x2x2xi32>)
    %1 = cleave.max_pool2d_grad %g, %0#1 {kernel = array<i64: 2, 2>, stride = array<i64: 2, 2>, padding = array<i64: 0, 0, 1, 1>} : (tensor<1x1x2x2xf32>, tensor<1x1x2x2xi32>) -> tensor<1x1x3x3xf32>
    %2 = cleave.avg_pool2d %x {kernel = array<i64: 2, 2>, stride = array<i64: 2, 2>, padding = array<i64: 0, 0, 1, 1>} : (tensor<1x1x3x3xf32>) -> tensor<1x1x2x2xf32>
    %3 = cleave.avg_pool2d_grad %g {kernel = array<i64: 2, 2>, stride = array<i64: 2, 2>, padding = array<i64: 0, 0, 1, 1>} : (tensor<1x1x2x2xf32>) -> tensor<1x1x3x3xf32>
    return %0#0, %1, %2, %3 : tensor<1x1x2x2xf32>, tensor<1x1x3x3xf32>, tensor<1x1x2x2xf32>, tensor<1x1x3x3xf32> })",
      {f32({1, 1, 3, 3}, {-1, -2, -3, -1, -5, -6, -7, -8, -9}), f32({1, 1, 2, 2}, {4, 8, 12, 16})});
  CHECK(results[0] == f32({1, 1, 2, 2}, {-1, -3, -7, -9}));              // padding is not treated as zero
  CHECK(results[1] == f32({1, 1, 3, 3}, {4, 0, 8, 0, 0, 0, 12, 0, 16})); // the first of equal maxima gets the gradient
  CHECK(results[2] == f32({1, 1, 2, 2}, {-2.25, -2.25, -3.75, -2.25}));  // padding counts in the mean
  CHECK(results[3] == f32({1, 1, 3, 3}, {1, 1, 2, 1, 1, 2, 3, 3, 4}));
}

TEST_CASE("softmax along any dimension") {
  HostTensor x = f32({2, 2}, {0, std::log(3.0), 1000, 1000});
  auto results = run(R"(func.func @f(%x: tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>) {
    %0 = cleave.softmax %x {dim = 1 : i64} : (tensor<2x2xf32>) -> tensor<2x2xf32>
    %1 = cleave.softmax %x {dim = 0 : i64} : (tensor<2x2xf32>) -> tensor<2x2xf32>
    %2 = cleave.log_softmax %x {dim = 1 : i64} : (tensor<2x2xf32>) -> tensor<2x2xf32>
    return %0, %1, %2 : tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32> })",
                     {x});
  requireClose(results[0], {0.25, 0.75, 0.5, 0.5});
  requireClose(results[1], {0, 0, 1, 1});
  requireClose(results[2], {std::log(0.25), std::log(0.75), std::log(0.5), std::log(0.5)});
}

TEST_CASE("losses ignore negative labels") {
  auto results = run(
      R"(func.func @f(%x: tensor<3x2xf32>, %l: tensor<3xi32>, %g: tensor<f32>) -> (tensor<f32>, tensor<f32>, tensor<3x2xf32>, tensor<f32>) {
    %0:3 = cleave.cross_entropy %x, %l : (tensor<3x2xf32>, tensor<3xi32>) -> (tensor<f32>, tensor<f32>, tensor<3xf32>)
    %1 = cleave.cross_entropy_grad %g, %x, %l, %0#2 : (tensor<f32>, tensor<3x2xf32>, tensor<3xi32>, tensor<3xf32>) -> tensor<3x2xf32>
    %2 = cleave.top_correct %x, %l : (tensor<3x2xf32>, tensor<3xi32>) -> tensor<f32>
    return %0#0, %0#1, %1, %2 : tensor<f32>, tensor<f32>, tensor<3x2xf32>, tensor<f32> })",
      {f32({3, 2}, {0, std::log(3.0), 5, 5, 9, 1}), i32({3}, {0, 1, -100}), f32({}, {2})});
  requireClose(results[0], {std::log(4.0) + std::log(2.0)});
  CHECK(results[1] == f32({}, {2}));
  requireClose(results[2], {-1.5, 1.5, 1, -1, 0, 0});
  CHECK(results[3] == f32({}, {0})); // of equal logits, the lower class is first, and it is not the label
}

TEST_CASE("normalisations") {
  auto results = run(
      R"(func.func @f(%x: tensor<2x2xf32>, %w: tensor<2xf32>, %b: tensor<2xf32>) -> (tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>) {
    %0:3 = cleave.layer_norm %x, %w, %b {eps = 0.0} : (tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>) -> (tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>)
    %1:3 = cleave.batch_norm %x, %w, %b {eps = 0.0} : (tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>) -> (tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>)
    return %0#0, %0#1, %0#2, %1#0, %1#1, %1#2 : tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32> })",
      {f32({2, 2}, {1, 5, 3, 11}), f32({2}, {2, 10}), f32({2}, {1, 0})});
  CHECK(results[0] == f32({2, 2}, {-1, 10, -1, 10}));
  CHECK(results[1] == f32({2}, {3, 7}));
  CHECK(results[2] == f32({2}, {0.5, 0.25}));
  CHECK(results[3] == f32({2, 2}, {-1, -10, 3, 10}));
  CHECK(results[4] == f32({2}, {2, 8}));
  CHECK(results[5] == f32({2}, {1, 9}));
}

TEST_CASE("batch normalisation in groups equals each group alone") {
  HostTensor x = randomF32({4, 3, 2, 2}, 5), w = randomF32({3}, 6), b = randomF32({3}, 7);
  auto grouped = run(
      R"(func.func @f(%x: tensor<4x3x2x2xf32>, %w: tensor<3xf32>, %b: tensor<3xf32>) -> (tensor<4x3x2x2xf32>, tensor<2x3xf32>) {
    %0:3 = cleave.batch_norm %x, %w, %b {eps = 1.0e-5, group = 2 : i64} : (tensor<4x3x2x2xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<4x3x2x2xf32>, tensor<2x3xf32>, tensor<2x3xf32>)
    return %0#0, %0#1 : tensor<4x3x2x2xf32>, tensor<2x3xf32> })",
      {x, w, b});
  for (int half = 0; half < 2; ++half) {
    HostTensor part = f32({2, 3, 2, 2}, {x.values.begin() + half * 24, x.values.begin() + half * 24 + 24});
    auto alone = run(
        R"(func.func @f(%x: tensor<2x3x2x2xf32>, %w: tensor<3xf32>, %b: tensor<3xf32>) -> (tensor<2x3x2x2xf32>, tensor<3xf32>) {
      %0:3 = cleave.batch_norm %x, %w, %b {eps = 1.0e-5} : (tensor<2x3x2x2xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<2x3x2x2xf32>, tensor<3xf32>, tensor<3xf32>)
      return %0#0, %0#1 : tensor<2x3x2x2xf32>, tensor<3xf32> })",
        {part, w, b});
    for (int i = 0; i < 24; ++i)
      CHECK(grouped[0].values[half * 24 + i] == alone[0].values[i]);
    for (int i = 0; i < 3; ++i)
      CHECK(grouped[1].values[half * 3 + i] == alone[1].values[i]);
  }
}

TEST_CASE("causal attention sees the past alone") {
  auto results = run(
      R"(func.func @f(%q: tensor<1x1x2x1xf32>, %k: tensor<1x1x3x1xf32>, %v: tensor<1x1x3x1xf32>) -> (tensor<1x1x2x1xf32>, tensor<1x1x2xf32>) {
    %0:2 = cleave.attention %q, %k, %v {scale = 2.0, causal} : (tensor<1x1x2x1xf32>, tensor<1x1x3x1xf32>, tensor<1x1x3x1xf32>) -> (tensor<1x1x2x1xf32>, tensor<1x1x2xf32>)
    return %0#0, %0#1 : tensor<1x1x2x1xf32>, tensor<1x1x2xf32> })",
      {f32({1, 1, 2, 1}, {0, 0.5}), f32({1, 1, 3, 1}, {7, 3, std::log(2.0)}), f32({1, 1, 3, 1}, {1, 3, 100})});
  double e7 = std::exp(7 - 7), e3 = std::exp(3 - 7.0), e2 = 2 * std::exp(-7.0), total = e7 + e3 + e2;
  requireClose(results[0], {2, (e7 * 1 + e3 * 3 + e2 * 100) / total}); // position 0 sees keys 0 and 1
  requireClose(results[1], {std::log(2.0), 7 + std::log(total)});
}

TEST_CASE("random numbers follow seed, name, step and microbatch") {
  std::string text = R"(func.func @f() -> tensor<2x3xf32> {
    %0 = cleave.random_uniform {name = "drop"} : () -> tensor<2x3xf32>
    return %0 : tensor<2x3xf32> })";
  HostTensor found = run(text, {}, {42, 3, 2})[0];
  for (int i = 0; i < 6; ++i)
    CHECK(found.values[i] == philoxUniform(42 ^ hashName("drop"), 3, 12 + i));
  const std::string shared = R"(func.func @f() -> tensor<2x3xf32> {
    %0 = cleave.random_uniform {name = "drop", shared} : () -> tensor<2x3xf32>
    return %0 : tensor<2x3xf32> })";
  found = run(shared, {}, {42, 3, 2})[0]; // the same in every microbatch
  for (int i = 0; i < 6; ++i)
    CHECK(found.values[i] == philoxUniform(42 ^ hashName("drop"), 3, i));
}

TEST_CASE("fusions run as their bodies") {
  auto results = run(R"(func.func @f(%x: tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2xf32>) {
    %0:2 = cleave.fusion(%x) : (tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2xf32>) {
    ^bb0(%a: tensor<2x2xf32>):
      %1 = cleave.mul %a, %a : tensor<2x2xf32>
      %2 = cleave.reduce sum %1 dims [1] : tensor<2x2xf32> -> tensor<2xf32>
      cleave.yield %1, %2 : tensor<2x2xf32>, tensor<2xf32>
    }
    return %0#0, %0#1 : tensor<2x2xf32>, tensor<2xf32> })",
                     {f32({2, 2}, {1, 2, 3, 4})});
  CHECK(results[0] == f32({2, 2}, {1, 4, 9, 16}));
  CHECK(results[1] == f32({2}, {5, 25}));
}

TEST_CASE("wrong inputs and labels are the user's mistakes") {
  std::string text = "func.func @f(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }";
  CHECK_THROWS_WITH(run(text, {f32({3}, {1, 2, 3})}),
                    Catch::Contains("argument 0 of @f is tensor<2xf32>, given tensor<3xf32>"));
  CHECK_THROWS_WITH(run(R"(func.func @f(%x: tensor<1x2xf32>, %l: tensor<1xi32>) -> tensor<f32> {
    %0 = cleave.top_correct %x, %l : (tensor<1x2xf32>, tensor<1xi32>) -> tensor<f32>
    return %0 : tensor<f32> })",
                        {f32({1, 2}, {1, 2}), i32({1}, {2})}),
                    Catch::Contains("label 2 in row 0, but there are 2 classes"));
  CHECK_THROWS_AS(GraphModule::parse("func.func @f() { %0 = cleave.nothing }", "test"), Error);
}
