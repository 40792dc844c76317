// Fusion and code generation together: training steps are fused, every fusion is compiled and executed, other ops run
// in the interpreter, and the results are compared with the interpreter's on the original function.
#include "passes/fuse/Fuse.h"
#include "ir/graph/Graph.h"
#include "ir/interpreter/Interpreter.h"
#include "passes/codegen/Codegen.h"
#include "passes/decompose/Decompose.h"
#include "passes/differentiate/Differentiate.h"
#include "passes/fuse/KernelCostTable.h"
#include "passes/optimizer/Optimizer.h"
#include "passes/simplify/Simplify.h"
#include "tests/unit/passes/FusedFunction.h"
#include "tests/unit/passes/Programs.h"

#include "mlir/AsmParser/AsmParser.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <random>

using namespace cleave;
using namespace cleave::testing;
using ir::HostTensor;

namespace {

std::vector<HostTensor> inputsOf(mlir::func::FuncOp function, int labels) {
  std::mt19937 random(11);
  std::normal_distribution<double> normal;
  std::vector<HostTensor> inputs;
  for (auto [i, type] : llvm::enumerate(function.getArgumentTypes())) {
    HostTensor t = like(type);
    auto name = function.getArgAttrOfType<mlir::StringAttr>(i, "cleave.name");
    auto kind = function.getArgAttrOfType<mlir::StringAttr>(i, "cleave.kind");
    for (double &x : t.values) {
      x = t.dtype == DType::F32 ? normal(random) * 0.25
                                    : static_cast<double>(random() % static_cast<unsigned>(labels));
      if (kind && kind.getValue() == "state")
        x = std::fabs(x);
      if (kind && (kind.getValue() == "scalar" || kind.getValue() == "metric"))
        x = name && name.getValue() == "lr" ? 0.01 : 4;
    }
    t.round();
    inputs.push_back(t);
  }
  return inputs;
}

/// Fuses a function of the module, runs it with and without fusion and compares. Returns one line per fusion: its ops.
std::vector<std::string> check(const GraphModule &module, const std::string &name, int labels = 10,
                               double tolerance = 2e-5, passes::FuseOptions options = {}) {
  auto function = module.module().lookupSymbol<mlir::func::FuncOp>(name);
  REQUIRE(function);
  std::vector<HostTensor> inputs = inputsOf(function, labels);
  std::vector<HostTensor> wanted = ir::evaluate(function, inputs);
  passes::fuse(function, options);
  REQUIRE(module.verify() == "");
  std::vector<std::string> kernels;
  for (mlir::Operation &op : function.front()) {
    bool loose = op.getName().getDialectNamespace() == "cleave" &&
                 !mlir::isa<ir::FusionOp, ir::ReshapeOp, ir::ConstantOp>(op) &&
                 (op.hasTrait<mlir::OpTrait::Elementwise>() ||
                  mlir::isa<ir::BroadcastOp, ir::ReduceOp, ir::TransposeOp, ir::SliceOp, ir::PadOp>(op));
    CHECK_FALSE(loose);
  }
  FusedFunction fused(function);
  std::vector<HostTensor> found = fused.run(inputs);
  for (mlir::Operation &op : function.front())
    if (mlir::isa<ir::FusionOp>(op))
      kernels.push_back(fused.info(&op).ops);
  REQUIRE(found.size() == wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    INFO("result " << i << " " << ir::typeText(wanted[i]));
    CHECK(ir::largestError(found[i], wanted[i]) < tolerance);
  }
  if (std::getenv("CLEAVE_SHOW_KERNELS"))
    for (mlir::Operation &op : function.front())
      if (mlir::isa<ir::FusionOp>(op))
        WARN(name << ": " << fused.info(&op).symbol << ": " << fused.info(&op).ops << "\n" << fused.info(&op).source);
  return kernels;
}

GraphModule trained(GraphModule module) {
  passes::differentiate(module.module(), 1);
  passes::decompose(module.module());
  passes::simplify(module.module());
  return module;
}

GraphModule parsed(const std::string &text) { return GraphModule::parse(text, "test"); }

} // namespace

TEST_CASE("bias and activation are one kernel", "[fuse]") {
  GraphModule m = parsed(R"(
    func.func @f(%x: tensor<9x20xf32>, %b: tensor<20xf32>) -> tensor<9x20xf32> {
      %0 = cleave.broadcast %b dims [1] : tensor<20xf32> -> tensor<9x20xf32>
      %1 = cleave.add %x, %0 : tensor<9x20xf32>
      %2 = cleave.gelu %1 : tensor<9x20xf32>
      return %2 : tensor<9x20xf32>
    })");
  CHECK(check(m, "f").size() == 1);
}

TEST_CASE("functions that share a table of costs are fused as alone", "[fuse]") {
  passes::KernelCostTable shared;
  for (const char *shape : {"9x20", "9x300", "9x20"}) // each in a context of its own
    for (const bool gpu : {false, true}) {
      const std::string text = fmt::format(R"(
        func.func @f(%x: tensor<{0}xf32>) -> (tensor<{0}xf32>, tensor<9xf32>) {{
          %0 = cleave.softmax %x {{dim = 1 : i64}} : (tensor<{0}xf32>) -> tensor<{0}xf32>
          %1 = cleave.gelu %0 : tensor<{0}xf32>
          %2 = cleave.reduce sum %1 dims [1] : tensor<{0}xf32> -> tensor<9xf32>
          return %1, %2 : tensor<{0}xf32>, tensor<9xf32>
        }})",
                                           shape);
      std::vector<std::string> fused;
      for (passes::KernelCostTable *costs : {static_cast<passes::KernelCostTable *>(nullptr), &shared}) {
        GraphModule m = parsed(text);
        passes::decompose(m.module());
        passes::fuse(m.module().lookupSymbol<mlir::func::FuncOp>("f"), {.gpu = gpu, .costs = costs});
        fused.push_back(m.str());
      }
      CHECK(fused[0] == fused[1]);
    }
}

TEST_CASE("softmax, layer norm and cross entropy are one kernel each", "[fuse]") {
  GraphModule softmax = parsed(R"(
    func.func @f(%x: tensor<6x4x50xf32>) -> tensor<6x4x50xf32> {
      %0 = cleave.softmax %x {dim = 2 : i64} : (tensor<6x4x50xf32>) -> tensor<6x4x50xf32>
      return %0 : tensor<6x4x50xf32>
    })");
  passes::decompose(softmax.module());
  CHECK(check(softmax, "f").size() == 1);
  GraphModule norm = parsed(R"(
    func.func @f(%x: tensor<6x33xf32>, %w: tensor<33xf32>, %b: tensor<33xf32>) -> (tensor<6x33xf32>, tensor<6xf32>, tensor<6xf32>) {
      %0:3 = cleave.layer_norm %x, %w, %b {eps = 1.0e-05 : f64} : (tensor<6x33xf32>, tensor<33xf32>, tensor<33xf32>) -> (tensor<6x33xf32>, tensor<6xf32>, tensor<6xf32>)
      return %0#0, %0#1, %0#2 : tensor<6x33xf32>, tensor<6xf32>, tensor<6xf32>
    })");
  passes::decompose(norm.module());
  CHECK(check(norm, "f").size() == 1);
}

TEST_CASE("a fusion never closes a cycle through a library op", "[fuse]") {
  GraphModule m = parsed(R"(
    func.func @f(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
      %0 = cleave.exp %x : tensor<8x8xf32>
      %1 = cleave.matmul %0, %0 : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
      %2 = cleave.add %0, %1 : tensor<8x8xf32>
      return %2 : tensor<8x8xf32>
    })");
  CHECK(check(m, "f").size() == 2);
}

TEST_CASE("reshapes at a border stay outside, constants for library ops too", "[fuse]") {
  GraphModule m = parsed(R"(
    func.func @f(%x: tensor<8x6xf32>) -> (tensor<48xf32>, tensor<8x6xf32>) {
      %0 = cleave.relu %x : tensor<8x6xf32>
      %1 = cleave.reshape %0 : tensor<8x6xf32> -> tensor<48xf32>
      %2 = cleave.constant dense<0.0> : tensor<8x6xf32> : tensor<8x6xf32>
      return %1, %2 : tensor<48xf32>, tensor<8x6xf32>
    })");
  CHECK(check(m, "f").size() == 1);
  CHECK(countOps(m, "f", "cleave.reshape") == 1);
  CHECK(countOps(m, "f", "cleave.constant") == 1);
}

TEST_CASE("a large reduction to few results is split", "[fuse]") {
  GraphModule m = parsed(R"(
    func.func @f(%x: tensor<300x257xf32>, %y: tensor<20x5000xf32>)
        -> (tensor<f32>, tensor<257xf32>, tensor<5000xf32>) {
      %0 = cleave.mul %x, %x : tensor<300x257xf32>
      %1 = cleave.reduce sum %0 dims [0, 1] : tensor<300x257xf32> -> tensor<f32>
      %2 = cleave.reduce sum %x dims [0] : tensor<300x257xf32> -> tensor<257xf32>
      %3 = cleave.reduce sum %y dims [0] : tensor<20x5000xf32> -> tensor<5000xf32>
      return %1, %2, %3 : tensor<f32>, tensor<257xf32>, tensor<5000xf32>
    })");
  CHECK(check(m, "f").size() == 5);
}

TEST_CASE("reductions are split for the threads of a GPU", "[fuse]") {
  GraphModule m = parsed(R"(
    func.func @f(%x: tensor<300x257xf32>, %y: tensor<2048x96xf32>) -> (tensor<f32>, tensor<96xf32>, tensor<300xf32>) {
      %0 = cleave.mul %x, %x : tensor<300x257xf32>
      %1 = cleave.reduce sum %0 dims [0, 1] : tensor<300x257xf32> -> tensor<f32>
      %2 = cleave.reduce sum %y dims [0] : tensor<2048x96xf32> -> tensor<96xf32>
      %3 = cleave.reduce max %x dims [1] : tensor<300x257xf32> -> tensor<300xf32>
      return %1, %2, %3 : tensor<f32>, tensor<96xf32>, tensor<300xf32>
    })");
  CHECK(check(m, "f", 10, 2e-5, {.gpu = true}).size() == 5); // all except the maximum take two steps
}

TEST_CASE("a mean far from zero does not cancel the variance that is summed beside it", "[fuse]") {
  for (const auto &[group, gpu] : {std::pair("0", true), {"4", true}, {"0", false}}) {
    std::string statistics = *group == '0' ? "tensor<24xf32>" : "tensor<4x24xf32>";
    GraphModule m = parsed(
        R"(
    func.func @f(%x: tensor<16x16x16x24xf32>, %w: tensor<24xf32>, %b: tensor<24xf32>) -> (tensor<16x16x16x24xf32>, )" +
        statistics +
        R"() {
      %far = cleave.constant dense<1000.0> : tensor<16x16x16x24xf32> : tensor<16x16x16x24xf32>
      %0 = cleave.add %x, %far : tensor<16x16x16x24xf32>
      %1:3 = cleave.batch_norm %0, %w, %b {eps = 1.0e-05 : f64, channels_last, group = )" +
        group + R"( : i64} : (tensor<16x16x16x24xf32>, tensor<24xf32>, tensor<24xf32>) -> (tensor<16x16x16x24xf32>, )" +
        statistics + ", " + statistics +
        R"()
      return %1#0, %1#2 : tensor<16x16x16x24xf32>, )" +
        statistics + R"(
    })");
    passes::decompose(m.module());
    passes::simplify(m.module());
    check(m, "f", 10, 1e-3, {.gpu = gpu});
    CHECK(countOps(m, "f", "cleave.fusion") <= 3);
  }
}

TEST_CASE("training step of an MLP", "[fuse]") {
  GraphModule m =
      forwardModule(input("x", "tensor<16x20xf32>") + ", " + input("y", "tensor<16xi32>") + ", " +
                        parameter("w1", "tensor<33x20xf32>") + ", " + parameter("b1", "tensor<33xf32>") + ", " +
                        parameter("w2", "tensor<10x33xf32>") + ", " + parameter("b2", "tensor<10xf32>"),
                    R"(
  %0 = cleave.matmul %x, %w1 {transB} : (tensor<16x20xf32>, tensor<33x20xf32>) -> tensor<16x33xf32>
  %1 = cleave.broadcast %b1 dims [1] : tensor<33xf32> -> tensor<16x33xf32>
  %2 = cleave.add %0, %1 : tensor<16x33xf32>
  %3 = cleave.relu %2 : tensor<16x33xf32>
  %4 = cleave.matmul %3, %w2 {transB} : (tensor<16x33xf32>, tensor<10x33xf32>) -> tensor<16x10xf32>
  %5 = cleave.broadcast %b2 dims [1] : tensor<10xf32> -> tensor<16x10xf32>
  %6 = cleave.add %4, %5 : tensor<16x10xf32>
  %loss, %count, %lse = cleave.cross_entropy %6, %y : (tensor<16x10xf32>, tensor<16xi32>) -> (tensor<f32>, tensor<f32>, tensor<16xf32>)
)");
  m = trained(std::move(m));
  auto kernels = check(m, "train");
  for (const std::string &k : kernels)
    UNSCOPED_INFO(k);
  CHECK(kernels.size() <= 6);
}

TEST_CASE("training step of a convolution with batch norm", "[fuse]") {
  GraphModule m = forwardModule(input("x", "tensor<6x3x8x8xf32>") + ", " + input("y", "tensor<6xi32>") + ", " +
                                    parameter("w", "tensor<5x3x3x3xf32>") + ", " + parameter("g", "tensor<5xf32>") +
                                    ", " + parameter("b", "tensor<5xf32>") + ", " + parameter("f", "tensor<10x80xf32>"),
                                R"(
  %0 = cleave.conv2d %x, %w {stride = array<i64: 1, 1>, padding = array<i64: 1, 1, 1, 1>, dilation = array<i64: 1, 1>, groups = 1 : i64} : (tensor<6x3x8x8xf32>, tensor<5x3x3x3xf32>) -> tensor<6x5x8x8xf32>
  %1, %mean, %var = cleave.batch_norm %0, %g, %b {eps = 1.0e-05 : f64} : (tensor<6x5x8x8xf32>, tensor<5xf32>, tensor<5xf32>) -> (tensor<6x5x8x8xf32>, tensor<5xf32>, tensor<5xf32>)
  %2 = cleave.relu %1 : tensor<6x5x8x8xf32>
  %3 = cleave.avg_pool2d %2 {kernel = array<i64: 2, 2>, stride = array<i64: 2, 2>, padding = array<i64: 0, 0, 0, 0>} : (tensor<6x5x8x8xf32>) -> tensor<6x5x4x4xf32>
  %4 = cleave.reshape %3 : tensor<6x5x4x4xf32> -> tensor<6x80xf32>
  %5 = cleave.matmul %4, %f {transB} : (tensor<6x80xf32>, tensor<10x80xf32>) -> tensor<6x10xf32>
  %loss, %count, %lse = cleave.cross_entropy %5, %y : (tensor<6x10xf32>, tensor<6xi32>) -> (tensor<f32>, tensor<f32>, tensor<6xf32>)
)");
  m = trained(std::move(m));
  auto kernels = check(m, "train");
  for (const std::string &k : kernels)
    UNSCOPED_INFO(k);
  CHECK(kernels.size() <= 5);
}

TEST_CASE("training step of a transformer block", "[fuse]") {
  GraphModule m =
      forwardModule(input("ids", "tensor<2x12xi32>") + ", " + input("y", "tensor<2x12xi32>") + ", " +
                        parameter("table", "tensor<20x32xf32>") + ", " + parameter("pos", "tensor<12x32xf32>") + ", " +
                        parameter("g1", "tensor<32xf32>") + ", " + parameter("b1", "tensor<32xf32>") + ", " +
                        parameter("qkv", "tensor<96x32xf32>") + ", " + parameter("qkvb", "tensor<96xf32>") + ", " +
                        parameter("proj", "tensor<32x32xf32>") + ", " + parameter("up", "tensor<64x32xf32>") + ", " +
                        parameter("upb", "tensor<64xf32>") + ", " + parameter("down", "tensor<32x64xf32>"),
                    R"(
  %e = cleave.embedding %table, %ids : (tensor<20x32xf32>, tensor<2x12xi32>) -> tensor<2x12x32xf32>
  %p = cleave.broadcast %pos dims [1, 2] : tensor<12x32xf32> -> tensor<2x12x32xf32>
  %h = cleave.add %e, %p : tensor<2x12x32xf32>
  %n:3 = cleave.layer_norm %h, %g1, %b1 {eps = 1.0e-05 : f64} : (tensor<2x12x32xf32>, tensor<32xf32>, tensor<32xf32>) -> (tensor<2x12x32xf32>, tensor<2x12xf32>, tensor<2x12xf32>)
  %m = cleave.matmul %n#0, %qkv {transB} : (tensor<2x12x32xf32>, tensor<96x32xf32>) -> tensor<2x12x96xf32>
  %qb = cleave.broadcast %qkvb dims [2] : tensor<96xf32> -> tensor<2x12x96xf32>
  %a = cleave.add %m, %qb : tensor<2x12x96xf32>
  %s = cleave.reshape %a : tensor<2x12x96xf32> -> tensor<2x12x3x4x8xf32>
  %q0 = cleave.slice %s starts [0, 0, 0, 0, 0] sizes [2, 12, 1, 4, 8] : tensor<2x12x3x4x8xf32> -> tensor<2x12x1x4x8xf32>
  %k0 = cleave.slice %s starts [0, 0, 1, 0, 0] sizes [2, 12, 1, 4, 8] : tensor<2x12x3x4x8xf32> -> tensor<2x12x1x4x8xf32>
  %v0 = cleave.slice %s starts [0, 0, 2, 0, 0] sizes [2, 12, 1, 4, 8] : tensor<2x12x3x4x8xf32> -> tensor<2x12x1x4x8xf32>
  %q1 = cleave.reshape %q0 : tensor<2x12x1x4x8xf32> -> tensor<2x12x4x8xf32>
  %k1 = cleave.reshape %k0 : tensor<2x12x1x4x8xf32> -> tensor<2x12x4x8xf32>
  %v1 = cleave.reshape %v0 : tensor<2x12x1x4x8xf32> -> tensor<2x12x4x8xf32>
  %q2 = cleave.transpose %q1 permutation [0, 2, 1, 3] : tensor<2x12x4x8xf32> -> tensor<2x4x12x8xf32>
  %k2 = cleave.transpose %k1 permutation [0, 2, 1, 3] : tensor<2x12x4x8xf32> -> tensor<2x4x12x8xf32>
  %v2 = cleave.transpose %v1 permutation [0, 2, 1, 3] : tensor<2x12x4x8xf32> -> tensor<2x4x12x8xf32>
  %att, %attlse = cleave.attention %q2, %k2, %v2 {scale = 0.35 : f64, causal} : (tensor<2x4x12x8xf32>, tensor<2x4x12x8xf32>, tensor<2x4x12x8xf32>) -> (tensor<2x4x12x8xf32>, tensor<2x4x12xf32>)
  %o1 = cleave.transpose %att permutation [0, 2, 1, 3] : tensor<2x4x12x8xf32> -> tensor<2x12x4x8xf32>
  %o2 = cleave.reshape %o1 : tensor<2x12x4x8xf32> -> tensor<2x12x32xf32>
  %o3 = cleave.matmul %o2, %proj {transB} : (tensor<2x12x32xf32>, tensor<32x32xf32>) -> tensor<2x12x32xf32>
  %r1 = cleave.add %h, %o3 : tensor<2x12x32xf32>
  %u0 = cleave.matmul %r1, %up {transB} : (tensor<2x12x32xf32>, tensor<64x32xf32>) -> tensor<2x12x64xf32>
  %ub = cleave.broadcast %upb dims [2] : tensor<64xf32> -> tensor<2x12x64xf32>
  %u1 = cleave.add %u0, %ub : tensor<2x12x64xf32>
  %u2 = cleave.gelu %u1 {tanh} : tensor<2x12x64xf32>
  %d0 = cleave.matmul %u2, %down {transB} : (tensor<2x12x64xf32>, tensor<32x64xf32>) -> tensor<2x12x32xf32>
  %r2 = cleave.add %r1, %d0 : tensor<2x12x32xf32>
  %logits = cleave.matmul %r2, %table {transB} : (tensor<2x12x32xf32>, tensor<20x32xf32>) -> tensor<2x12x20xf32>
  %loss, %count, %lse = cleave.cross_entropy %logits, %y : (tensor<2x12x20xf32>, tensor<2x12xi32>) -> (tensor<f32>, tensor<f32>, tensor<2x12xf32>)
)");
  m = trained(std::move(m));
  auto kernels = check(m, "train", 12, 1e-4);
  for (const std::string &k : kernels)
    UNSCOPED_INFO(k);
  CHECK(kernels.size() <= 20);
}

TEST_CASE("optimizer updates: parameters share one kernel", "[fuse]") {
  for (const char *optimizer : {"{name = \"adam\", lr = 0.001}", "{name = \"sgd\", lr = 0.1, momentum = 0.9}",
                                "{name = \"adamw\", lr = 0.001, weight_decay = 0.01, clip_norm = 1.0}"}) {
    GraphModule m = forwardModule(input("x", "tensor<4x16xf32>") + ", " + parameter("a", "tensor<7x16xf32>") + ", " +
                                      parameter("b", "tensor<5x7xf32>") + ", " + parameter("c", "tensor<5xf32>"),
                                  R"(
  %0 = cleave.matmul %x, %a {transB} : (tensor<4x16xf32>, tensor<7x16xf32>) -> tensor<4x7xf32>
  %1 = cleave.matmul %0, %b {transB} : (tensor<4x7xf32>, tensor<5x7xf32>) -> tensor<4x5xf32>
  %2 = cleave.broadcast %c dims [1] : tensor<5xf32> -> tensor<4x5xf32>
  %3 = cleave.add %1, %2 : tensor<4x5xf32>
  %loss = cleave.reduce sum %3 dims [0, 1] : tensor<4x5xf32> -> tensor<f32>
)");
    m.module()->setAttr("cleave.optimizer", mlir::parseAttribute(optimizer, &m.context()));
    passes::differentiate(m.module(), 1);
    passes::buildOptimizer(m.module());
    passes::decompose(m.module());
    passes::simplify(m.module());
    auto kernels = check(m, "update", 10, 1e-4);
    for (const std::string &k : kernels)
      UNSCOPED_INFO(k);
    CHECK(kernels.size() <= 8);
  }
}
