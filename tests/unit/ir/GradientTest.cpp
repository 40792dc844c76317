// Compares gradient ops in the interpreter with finite differences of their forward ops: for a function y = f(x...) and
// random r, the gradient of sum(r * y) in each direction.
#include "tests/unit/ir/Ir.h"

#include <cmath>

using namespace cleave::ir;

namespace {

std::string listOf(const std::vector<HostTensor> &tensors, const std::string &name) {
  std::string text;
  for (size_t i = 0; i < tensors.size(); ++i)
    text += (i ? ", " : "") + (name.empty() ? "" : "%" + name + std::to_string(i) + ": ") + typeText(tensors[i]);
  return text;
}

/// Runs f(inputs), which returns one tensor; `body` is text that defines %y of type `result`.
HostTensor forward(const std::string &body, const std::string &result, const std::vector<HostTensor> &inputs) {
  return run("func.func @f(" + listOf(inputs, "x") + ") -> " + result + " {\n" + body + "\nreturn %y : " + result +
                 "\n}",
             inputs)[0];
}

/// `backward` defines %g0, %g1, ... from %x0, ... and %r.
void checkGradients(const std::string &body, const std::string &result, const std::string &backward,
                    const std::vector<HostTensor> &inputs, size_t differentiated, double step = 1e-2,
                    double tolerance = 2e-3) {
  HostTensor y = forward(body, result, inputs);
  std::vector<HostTensor> all = inputs;
  HostTensor r = randomF32(y.shape, 99);
  all.push_back(r);
  std::string types, values;
  for (size_t i = 0; i < differentiated; ++i) {
    types += (i ? ", " : "") + typeText(inputs[i]);
    values += (i ? ", %g" : "%g") + std::to_string(i);
  }
  std::string arguments = listOf(inputs, "x") + ", %r: " + typeText(r);
  auto found = run("func.func @f(" + arguments + ") -> (" + types + ") {\n" + body + "\n" + backward + "\nreturn " +
                       values + " : " + types + "\n}",
                   all);
  for (size_t i = 0; i < differentiated; ++i)
    for (int64_t j = 0; j < inputs[i].size(); ++j) {
      double slope = 0;
      for (int sign : {-1, 1}) {
        std::vector<HostTensor> moved = inputs;
        moved[i].values[j] = static_cast<float>(moved[i].values[j] + sign * step);
        HostTensor value = forward(body, result, moved);
        for (int64_t k = 0; k < value.size(); ++k)
          slope += sign * r.values[k] * value.values[k];
      }
      slope /= 2 * step;
      INFO("operand " << i << " element " << j);
      REQUIRE(found[i].values[j] == Approx(slope).margin(tolerance).epsilon(tolerance));
    }
}

} // namespace

TEST_CASE("gelu_grad") {
  for (std::string tanh : {"", "{tanh}"})
    checkGradients("%y = cleave.gelu %x0 " + tanh + " : tensor<9xf32>", "tensor<9xf32>",
                   "%g0 = cleave.gelu_grad %r, %x0 " + tanh + " : tensor<9xf32>",
                   {f32({9}, {-3, -2, -1, -0.5, 0, 0.5, 1, 2, 3})}, 1);
}

TEST_CASE("conv2d gradients") {
  std::string at =
      "{stride = array<i64: 2, 1>, padding = array<i64: 1, 0, 0, 1>, dilation = array<i64: 1, 2>, groups = 2 : i64}";
  std::string x = "tensor<2x4x5x4xf32>", w = "tensor<2x2x3x2xf32>", y = "tensor<2x2x2x3xf32>";
  checkGradients("%y = cleave.conv2d %x0, %x1 " + at + " : (" + x + ", " + w + ") -> " + y, y,
                 "%g0 = cleave.conv2d_input_grad %r, %x1 " + at + " : (" + y + ", " + w + ") -> " + x +
                     "\n%g1 = cleave.conv2d_weight_grad %r, %x0 " + at + " : (" + y + ", " + x + ") -> " + w,
                 {randomF32({2, 4, 5, 4}, 1), randomF32({2, 2, 3, 2}, 2)}, 2);
}

TEST_CASE("pooling gradients") {
  std::string at = "{kernel = array<i64: 3, 2>, stride = array<i64: 2, 1>, padding = array<i64: 1, 0, 1, 1>}";
  std::string x = "tensor<1x2x5x4xf32>", y = "tensor<1x2x3x4xf32>", w = "tensor<1x2x3x4xi32>";
  std::vector<double> apart; // no two values are closer than a step
  for (int i = 0; i < 40; ++i)
    apart.push_back((i * 17 % 40) * 0.1 - 2);
  checkGradients("%y, %w = cleave.max_pool2d %x0 " + at + " : (" + x + ") -> (" + y + ", " + w + ")", y,
                 "%g0 = cleave.max_pool2d_grad %r, %w " + at + " : (" + y + ", " + w + ") -> " + x,
                 {f32({1, 2, 5, 4}, apart)}, 1);
  checkGradients("%y = cleave.avg_pool2d %x0 " + at + " : (" + x + ") -> " + y, y,
                 "%g0 = cleave.avg_pool2d_grad %r " + at + " : (" + y + ") -> " + x, {randomF32({1, 2, 5, 4}, 3)}, 1);
}

TEST_CASE("attention_grad") {
  for (std::string causal : {"", ", causal"}) {
    std::string q = "tensor<2x1x3x2xf32>", k = "tensor<2x1x4x2xf32>", l = "tensor<2x1x3xf32>",
                at = " {scale = 0.7" + causal + "} : ";
    checkGradients("%y, %l = cleave.attention %x0, %x1, %x2" + at + "(" + q + ", " + k + ", " + k + ") -> (" + q +
                       ", " + l + ")",
                   q,
                   "%g0, %g1, %g2 = cleave.attention_grad %r, %x0, %x1, %x2, %y, %l" + at + "(" + q + ", " + q + ", " +
                       k + ", " + k + ", " + q + ", " + l + ") -> (" + q + ", " + k + ", " + k + ")",
                   {randomF32({2, 1, 3, 2}, 1), randomF32({2, 1, 4, 2}, 2), randomF32({2, 1, 4, 2}, 3)}, 3);
  }
}

TEST_CASE("layer_norm_grad") {
  std::string x = "tensor<2x3x5xf32>", w = "tensor<5xf32>", m = "tensor<2x3xf32>";
  checkGradients("%y, %m, %s = cleave.layer_norm %x0, %x1, %x2 {eps = 1.0e-5} : (" + x + ", " + w + ", " + w +
                     ") -> (" + x + ", " + m + ", " + m + ")",
                 x,
                 "%g0, %g1, %g2 = cleave.layer_norm_grad %r, %x0, %x1, %m, %s : (" + x + ", " + x + ", " + w + ", " +
                     m + ", " + m + ") -> (" + x + ", " + w + ", " + w + ")",
                 {randomF32({2, 3, 5}, 1), randomF32({5}, 2), randomF32({5}, 3)}, 3);
}

TEST_CASE("batch_norm_grad") {
  std::string x = "tensor<4x2x3xf32>", w = "tensor<2xf32>";
  for (int group : {0, 2}) {
    std::string m = group ? "tensor<2x2xf32>" : "tensor<2xf32>",
                at = " {eps = 1.0e-3, group = " + std::to_string(group) + " : i64} : ";
    checkGradients("%y, %m, %v = cleave.batch_norm %x0, %x1, %x2" + at + "(" + x + ", " + w + ", " + w + ") -> (" + x +
                       ", " + m + ", " + m + ")",
                   x,
                   "%g0, %g1, %g2 = cleave.batch_norm_grad %r, %x0, %x1, %m, %v" + at + "(" + x + ", " + x + ", " + w +
                       ", " + m + ", " + m + ") -> (" + x + ", " + w + ", " + w + ")",
                   {randomF32({4, 2, 3}, 1), randomF32({2}, 2), randomF32({2}, 3)}, 3);
  }
}

TEST_CASE("cross_entropy_grad") {
  HostTensor labels = i32({4}, {2, 0, -1, 1});
  std::string x = "tensor<4x3xf32>", body = "%y, %w, %l = cleave.cross_entropy %x0, %x1 : (" + x +
                                            ", tensor<4xi32>) -> (tensor<f32>, tensor<f32>, tensor<4xf32>)";
  checkGradients(body, "tensor<f32>",
                 "%g0 = cleave.cross_entropy_grad %r, %x0, %x1, %l : (tensor<f32>, " + x +
                     ", tensor<4xi32>, tensor<4xf32>) -> " + x,
                 {randomF32({4, 3}, 1), labels}, 1);
}
