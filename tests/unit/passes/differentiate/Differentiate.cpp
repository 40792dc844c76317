// Differentiation: the form of @train, and every rule against finite differences in the interpreter.
#include "passes/differentiate/Differentiate.h"

#include "ir/graph/Graph.h"
#include "runtime/base/Error.h"
#include "tests/unit/passes/Programs.h"

#include <catch2/catch.hpp>

using namespace cleave;
using namespace cleave::testing;

namespace {

mlir::func::FuncOp train(const GraphModule &module) {
  return module.module().lookupSymbol<mlir::func::FuncOp>("train");
}

std::string text(mlir::Operation &op, llvm::StringRef name) {
  auto attribute = op.getAttrOfType<mlir::StringAttr>(name);
  return attribute ? attribute.str() : "";
}

const char *twoLayers = R"(
  %h = cleave.matmul %x, %w1 {transB, cleave.path = "fc1", cleave.stage = 0 : i64} : (tensor<4x3xf32>, tensor<5x3xf32>) -> tensor<4x5xf32> loc("model.cpp":3:7)
  %r = cleave.relu %h {cleave.path = "act"} : tensor<4x5xf32>
  %o = cleave.matmul %r, %w2 {transB, cleave.path = "fc2", cleave.stage = 1 : i64} : (tensor<4x5xf32>, tensor<2x5xf32>) -> tensor<4x2xf32>
  %loss = cleave.reduce sum %o dims [0, 1] {cleave.path = "loss"} : tensor<4x2xf32> -> tensor<f32>)";

} // namespace

TEST_CASE("gradient ops follow the forward ops in reverse and carry their origin", "[differentiate]") {
  GraphModule module = forwardModule(input("x", "tensor<4x3xf32>") + ", " + parameter("w1", "tensor<5x3xf32>") + ", " +
                                         parameter("w2", "tensor<2x5xf32>"),
                                     twoLayers);
  passes::differentiate(module.module(), 3);
  REQUIRE(module.verify().empty());
  CHECK_FALSE(module.module().lookupSymbol("forward"));
  std::vector<std::string> backwardPaths;
  bool backward = false;
  for (mlir::Operation &op : train(module).front().without_terminator()) {
    bool here = text(op, ir::attr::phase) == "backward";
    CHECK((here || !backward)); // no forward op after a backward one
    backward |= here;
    if (here)
      backwardPaths.push_back(text(op, ir::attr::path));
    if (here && text(op, ir::attr::path) == "fc1") {
      CHECK(op.getAttrOfType<mlir::IntegerAttr>(ir::attr::stage).getInt() == 0);
      CHECK(mlir::isa<mlir::FileLineColLoc>(op.getLoc()));
    }
  }
  CHECK(backwardPaths.front() == "loss");
  CHECK(backwardPaths.back() == "fc1");
  CHECK(std::find(backwardPaths.begin(), backwardPaths.end(), "fc2") <
        std::find(backwardPaths.begin(), backwardPaths.end(), "act"));
}

TEST_CASE("results are forward's, then a gradient for every trainable parameter in argument order", "[differentiate]") {
  GraphModule module = forwardModule(parameter("b", "tensor<f32>") + ", " + parameter("a", "tensor<f32>"),
                                     "%loss = cleave.mul %a, %b : tensor<f32>");
  passes::differentiate(module.module(), 1);
  auto function = train(module);
  REQUIRE(function.getNumResults() == 3);
  auto result = [&](unsigned i, llvm::StringRef name) {
    return function.getResultAttrOfType<mlir::StringAttr>(i, name).str();
  };
  CHECK(result(0, ir::attr::kind) == "loss");
  CHECK(result(1, ir::attr::kind) == "gradient");
  CHECK(result(1, ir::attr::name) == "b");
  CHECK(result(2, ir::attr::name) == "a");
  CHECK(function.getResultAttr(2, ir::attr::trainable));
}

TEST_CASE("the loss is seeded with one over the static count", "[differentiate]") {
  GraphModule module =
      forwardModule(parameter("a", "tensor<f32>"), "%loss = cleave.reshape %a : tensor<f32> -> tensor<f32>");
  passes::differentiate(module.module(), 2);
  CHECK(train(module)->getAttrOfType<mlir::IntegerAttr>("cleave.static_count").getInt() == 8);
  CHECK(evaluate(module, "train", {{"parameter:a", {{}, {3}}}}).at("gradient:a").data == std::vector<double>{0.125});
}

TEST_CASE("nothing is built towards inputs and frozen parameters", "[differentiate]") {
  GraphModule module = forwardModule(
      input("x", "tensor<4x3xf32>") + ", %w1: tensor<5x3xf32> {cleave.kind = \"parameter\", cleave.name = \"w1\"}, " +
          parameter("w2", "tensor<2x5xf32>"),
      twoLayers);
  passes::differentiate(module.module(), 1);
  CHECK(train(module).getNumResults() == 2);
  CHECK(countOps(module, "train", "cleave.matmul") == 3); // two forward, one for the gradient of w2
  CHECK(countOps(module, "train", "cleave.compare") == 0);
}

TEST_CASE("a parameter that no gradient reaches has none and is not trained", "[differentiate]") {
  GraphModule module = forwardModule(parameter("a", "tensor<f32>") + ", " + parameter("idle", "tensor<2xf32>") + ", " +
                                         parameter("stopped", "tensor<f32>"),
                                     R"(
  %d = cleave.detach %stopped : tensor<f32>
  %e = cleave.exp %a : tensor<f32>
  %loss = cleave.mul %d, %e : tensor<f32>)");
  const std::vector<std::string> without = {"idle", "stopped"};
  CHECK(passes::parametersWithoutGradient(llvm::cast<mlir::func::FuncOp>(module.function("forward"))) == without);
  passes::leaveUntrained(module.module());
  passes::differentiate(module.module(), 1);
  REQUIRE(module.verify().empty());
  auto function = train(module);
  REQUIRE(function.getNumResults() == 2);
  CHECK(function.getResultAttrOfType<mlir::StringAttr>(1, ir::attr::name) == "a");
  for (unsigned i = 0; i < 3; ++i)
    CHECK((function.getArgAttr(i, ir::attr::trainable) != nullptr) == (i == 0));
}

TEST_CASE("a trainable parameter whose ops were simplified away has a gradient of zero", "[differentiate]") {
  GraphModule module = forwardModule(parameter("a", "tensor<f32>") + ", " + parameter("idle", "tensor<2xf32>"),
                                     "%loss = cleave.exp %a : tensor<f32>");
  passes::differentiate(module.module(), 1);
  REQUIRE(module.verify().empty());
  const auto found = evaluate(module, "train", {{"parameter:a", {{}, {0}}}, {"parameter:idle", {{2}, {1, 2}}}});
  CHECK(found.at("gradient:idle").data == std::vector<double>{0, 0});
}

TEST_CASE("contributions are added in the stage in which they arise", "[differentiate]") {
  GraphModule module = forwardModule(parameter("a", "tensor<3xf32>"), R"(
  %e = cleave.exp %a {cleave.path = "early", cleave.stage = 0 : i64} : tensor<3xf32>
  %p = cleave.tanh %e {cleave.path = "late", cleave.stage = 1 : i64} : tensor<3xf32>
  %q = cleave.mul %e, %p {cleave.path = "late", cleave.stage = 1 : i64} : tensor<3xf32>
  %loss = cleave.reduce sum %q dims [0] {cleave.path = "late", cleave.stage = 1 : i64} : tensor<3xf32> -> tensor<f32>)");
  passes::differentiate(module.module(), 1);
  int adds = 0;
  for (mlir::Operation &op : train(module).front())
    if (mlir::isa<ir::AddOp>(op)) {
      ++adds;
      CHECK(text(op, ir::attr::path) == "early");
      CHECK(op.getAttrOfType<mlir::IntegerAttr>(ir::attr::stage).getInt() == 1);
      CHECK(text(op, ir::attr::phase) == "backward");
    }
  CHECK(adds == 1);
}

TEST_CASE("a gradient that a stage passes on unchanged goes on from there", "[differentiate]") {
  GraphModule module = forwardModule(parameter("a", "tensor<3xf32>") + ", " + input("x", "tensor<3xf32>"), R"(
  %e = cleave.exp %a {cleave.path = "first", cleave.stage = 0 : i64} : tensor<3xf32>
  %s = cleave.add %e, %x {cleave.path = "second", cleave.stage = 1 : i64} : tensor<3xf32>
  %t = cleave.tanh %s {cleave.path = "third", cleave.stage = 2 : i64} : tensor<3xf32>
  %loss = cleave.reduce sum %t dims [0] {cleave.path = "third", cleave.stage = 2 : i64} : tensor<3xf32> -> tensor<f32>)");
  passes::differentiate(module.module(), 1);
  REQUIRE(module.verify().empty());
  auto stageOf = [](mlir::Operation *op) { return op->getAttrOfType<mlir::IntegerAttr>(ir::attr::stage).getInt(); };
  for (mlir::Operation &op : train(module).front())
    if (text(op, ir::attr::phase) == "backward")
      for (mlir::Value operand : op.getOperands())
        if (mlir::Operation *def = operand.getDefiningOp(); def && text(*def, ir::attr::phase) == "backward")
          CHECK(stageOf(def) - stageOf(&op) <= 1); // skips no stage
}

TEST_CASE("an op without a gradient is an error at the user's line", "[differentiate]") {
  GraphModule module = forwardModule(parameter("r", "tensor<2x4xf32>") + ", " + input("ids", "tensor<2xi32>"), R"(
  %g = "cleave.embedding_grad"(%r, %ids) : (tensor<2x4xf32>, tensor<2xi32>) -> tensor<7x4xf32> loc("model.cpp":12:34)
  %loss = cleave.reduce sum %g dims [0, 1] : tensor<7x4xf32> -> tensor<f32>)");
  CHECK_THROWS_WITH(passes::differentiate(module.module(), 1),
                    Catch::Contains("model.cpp:12:34") && Catch::Contains("cleave.embedding_grad has no gradient"));
}

TEST_CASE("a loss that depends on a statistic without a gradient is an error", "[differentiate]") {
  GraphModule module = forwardModule(parameter("x", "tensor<2x4xf32>") + ", " + parameter("w", "tensor<4xf32>"), R"(
  %y, %m, %r = cleave.layer_norm %x, %w, %w {eps = 1.0e-5 : f64} : (tensor<2x4xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<2x4xf32>, tensor<2xf32>, tensor<2xf32>)
  %loss = cleave.reduce sum %r dims [0] : tensor<2xf32> -> tensor<f32>)");
  CHECK_THROWS_WITH(passes::differentiate(module.module(), 1), Catch::Contains("result 2 of cleave.layer_norm"));
}

TEST_CASE("@forward must say how much a microbatch counts", "[differentiate]") {
  GraphModule module = forwardModule(parameter("a", "tensor<f32>"), "%loss = cleave.exp %a : tensor<f32>");
  module.module().lookupSymbol("forward")->removeAttr("cleave.static_weight");
  CHECK_THROWS_WITH(passes::differentiate(module.module(), 1), Catch::Contains("cleave.static_weight"));
}

TEST_CASE("casts and hints hand the gradient on, integers carry none", "[differentiate]") {
  GraphModule module = forwardModule(parameter("x", "tensor<4xf32>"), R"(
  %h = cleave.shard_hint %x ["dp"] : tensor<4xf32>
  %b = cleave.cast %h : tensor<4xf32> -> tensor<4xbf16>
  %i = cleave.cast %h : tensor<4xf32> -> tensor<4xi32>
  %fi = cleave.cast %i : tensor<4xi32> -> tensor<4xf32>
  %f = cleave.cast %b : tensor<4xbf16> -> tensor<4xf32>
  %p = cleave.mul %f, %fi : tensor<4xf32>
  %loss = cleave.reduce sum %p dims [0] : tensor<4xf32> -> tensor<f32>)");
  passes::differentiate(module.module(), 1);
  REQUIRE(module.verify().empty());
  Arrays results = evaluate(module, "train", {{"parameter:x", {{4}, {1, 2, 4, 8}}}});
  CHECK(results.at("gradient:x").data == std::vector<double>{0.25, 0.5, 1, 2});
}

TEST_CASE("dropout's gradient passes where the value passed", "[differentiate]") {
  GraphModule module = forwardModule(parameter("x", "tensor<64xf32>"), R"(
  %u = cleave.random_uniform {name = "drop"} : () -> tensor<64xf32>
  %p = cleave.constant dense<0.5> : tensor<64xf32> : tensor<64xf32>
  %zero = cleave.constant dense<0.0> : tensor<64xf32> : tensor<64xf32>
  %two = cleave.constant dense<2.0> : tensor<64xf32> : tensor<64xf32>
  %keep = cleave.compare ge %u, %p : tensor<64xf32> -> tensor<64xi1>
  %scaled = cleave.mul %x, %two : tensor<64xf32>
  %y = cleave.select %keep, %scaled, %zero : tensor<64xi1>, tensor<64xf32>
  %loss = cleave.reduce sum %y dims [0] : tensor<64xf32> -> tensor<f32>)");
  passes::differentiate(module.module(), 1);
  Arrays results = evaluate(module, "train", {{"parameter:x", {{64}, std::vector<double>(64, 1.0)}}});
  double sum = 0;
  for (double gradient : results.at("gradient:x").data) {
    CHECK((gradient == 0 || gradient == 0.5));
    sum += gradient;
  }
  // the loss is linear: its gradient at x = 1 is its value, divided by the static count
  CHECK(4 * sum == results.at("loss").data[0]);
}

TEST_CASE("every rule agrees with finite differences", "[differentiate]") {
  for (const auto &example : golden("ops.json")) {
    std::string name = example["name"];
    if (name == "top_correct")
      continue; // a step function has no useful gradient
    DYNAMIC_SECTION(name) {
      GraphModule forward = GraphModule::parse(example["ir"], name), train = forward.clone();
      passes::differentiate(train.module(), 1);
      Arrays arguments = argumentsOf(example), gradients = evaluate(train, "train", arguments);
      for (auto &[key, values] : arguments) {
        if (key.rfind("parameter:", 0) != 0)
          continue;
        const Array gradient = gradientOf(gradients, key.substr(10), values.shape);
        for (size_t i = 0; i < values.data.size(); ++i) {
          const double step = 1e-2, at = values.data[i];
          auto loss = [&](double x) {
            values.data[i] = x;
            return evaluate(forward, "forward", arguments).at("loss").data[0];
          };
          double slope =
              (8 * (loss(at + step) - loss(at - step)) - (loss(at + 2 * step) - loss(at - 2 * step))) / (12 * step);
          values.data[i] = at;
          INFO(key << "[" << i << "] at " << at);
          CHECK(gradient.data[i] == Approx(slope).margin(2e-3).epsilon(2e-3));
        }
      }
    }
  }
}
