// Decomposition: which ops remain, the attributes of primitives, and equal results.
#include "passes/decompose/Decompose.h"

#include "ir/graph/Graph.h"
#include "passes/differentiate/Differentiate.h"
#include "passes/simplify/Simplify.h"
#include "tests/unit/passes/Programs.h"

#include <catch2/catch.hpp>
#include <set>

using namespace cleave;
using namespace cleave::testing;

namespace {

const std::set<std::string> composites = {
    "cleave.softmax",    "cleave.log_softmax",     "cleave.layer_norm",    "cleave.layer_norm_grad",
    "cleave.batch_norm", "cleave.batch_norm_grad", "cleave.cross_entropy", "cleave.cross_entropy_grad",
    "cleave.attention",  "cleave.attention_grad",  "cleave.top_correct",
};

const char *lossAndAccuracy = R"(
  %s, %w, %lse = cleave.cross_entropy %x, %y {cleave.path = "loss"} : (tensor<6x5xf32>, tensor<6xi32>) -> (tensor<f32>, tensor<f32>, tensor<6xf32>)
  %c = cleave.top_correct %x, %y {cleave.path = "loss"} : (tensor<6x5xf32>, tensor<6xi32>) -> tensor<f32>
  %loss = cleave.add %s, %c : tensor<f32>)";

} // namespace

TEST_CASE("every composite equals its primitives", "[decompose]") {
  for (const auto &example : golden("ops.json")) {
    std::string name = example["name"];
    GraphModule whole = GraphModule::parse(example["ir"], name);
    passes::differentiate(whole.module(), 1);
    auto before = opNames(whole, "train");
    if (std::none_of(before.begin(), before.end(), [](const std::string &op) { return composites.count(op); }))
      continue;
    DYNAMIC_SECTION(name) {
      GraphModule parts = whole.clone();
      passes::decompose(parts.module());
      REQUIRE(parts.verify().empty());
      for (const std::string &op : opNames(parts, "train"))
        CHECK_FALSE(composites.count(op));
      Arrays arguments = argumentsOf(example), expected = evaluate(whole, "train", arguments);
      GraphModule simple = parts.clone();
      passes::simplify(simple.module());
      REQUIRE(simple.verify().empty());
      for (const GraphModule *module : {&parts, &simple})
        for (const auto &[key, value] : evaluate(*module, "train", arguments)) {
          INFO(key);
          CHECK(apart(value, expected.at(key)) < 2e-6);
        }
    }
  }
}

TEST_CASE("primitives carry the composite's location and marks", "[decompose]") {
  GraphModule module = forwardModule(parameter("x", "tensor<2x3xf32>"), R"(
  %y = cleave.softmax %x {dim = 1 : i64, cleave.path = "a.b", cleave.stage = 1 : i64, cleave.phase = "backward"} : (tensor<2x3xf32>) -> tensor<2x3xf32> loc("model.cpp":5:6)
  %loss = cleave.reduce sum %y dims [0, 1] {cleave.path = "loss"} : tensor<2x3xf32> -> tensor<f32>)");
  passes::decompose(module.module());
  for (mlir::Operation &op : module.module().lookupSymbol<mlir::func::FuncOp>("forward").front().without_terminator()) {
    if (op.getAttrOfType<mlir::StringAttr>(ir::attr::path).getValue() == "loss")
      continue;
    CHECK(op.getAttrOfType<mlir::StringAttr>(ir::attr::path).getValue() == "a.b");
    CHECK(op.getAttrOfType<mlir::IntegerAttr>(ir::attr::stage).getInt() == 1);
    CHECK(op.getAttrOfType<mlir::StringAttr>(ir::attr::phase).getValue() == "backward");
    auto where = mlir::dyn_cast<mlir::FileLineColLoc>(op.getLoc());
    CHECK((where && where.getLine() == 5));
  }
}

TEST_CASE("attention stays where the device has such a kernel", "[decompose]") {
  GraphModule module = forwardModule(parameter("x", "tensor<1x2x3x4xf32>"), R"(
  %y, %lse = cleave.attention %x, %x, %x {scale = 0.5 : f64, causal} : (tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>) -> (tensor<1x2x3x4xf32>, tensor<1x2x3xf32>)
  %loss = cleave.reduce sum %y dims [0, 1, 2, 3] : tensor<1x2x3x4xf32> -> tensor<f32>)");
  passes::differentiate(module.module(), 1);
  passes::decompose(module.module(), {passes::AttentionOps::Keep});
  CHECK(countOps(module, "train", "cleave.attention") == 1);
  CHECK(countOps(module, "train", "cleave.attention_grad") == 1);
}

TEST_CASE("cross-entropy and accuracy share the maximum and the label's logit", "[decompose]") {
  GraphModule module =
      forwardModule(parameter("x", "tensor<6x5xf32>") + ", " + input("y", "tensor<6xi32>"), lossAndAccuracy);
  passes::decompose(module.module());
  passes::simplify(module.module());
  int maxima = 0;
  module.module().walk([&](ir::ReduceOp op) { maxima += op.getKind() == ir::ReduceKind::Max; });
  CHECK(maxima == 1);
  CHECK(countOps(module, "forward", "cleave.iota") == 1);
}

TEST_CASE("statistics of half-precision values are f32", "[decompose]") {
  GraphModule module = forwardModule(parameter("x", "tensor<2x4xbf16>") + ", " + parameter("w", "tensor<4xbf16>"), R"(
  %y, %m, %r = cleave.layer_norm %x, %w, %w {eps = 1.0e-5 : f64} : (tensor<2x4xbf16>, tensor<4xbf16>, tensor<4xbf16>) -> (tensor<2x4xbf16>, tensor<2xf32>, tensor<2xf32>)
  %z = cleave.softmax %y {dim = 1 : i64} : (tensor<2x4xbf16>) -> tensor<2x4xbf16>
  %f = cleave.cast %z : tensor<2x4xbf16> -> tensor<2x4xf32>
  %loss = cleave.reduce sum %f dims [0, 1] : tensor<2x4xf32> -> tensor<f32>)");
  passes::differentiate(module.module(), 1);
  passes::decompose(module.module());
  CHECK(module.verify().empty());
  module.module().walk([](ir::ExpOp op) { CHECK(op.getType().getElementType().isF32()); });
  module.module().walk([](ir::RsqrtOp op) { CHECK(op.getType().getElementType().isF32()); });
}
