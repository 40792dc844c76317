// Simplification: the rewrites, merging of equal ops, and preserved attributes.
#include "passes/simplify/Simplify.h"

#include "ir/graph/Graph.h"
#include "tests/unit/passes/Programs.h"

#include <catch2/catch.hpp>

using namespace cleave;
using namespace cleave::testing;

namespace {

using Names = std::vector<std::string>;

/// Op names of @forward after simplification.
Names simplified(const std::string &arguments, const std::string &body) {
  GraphModule module = forwardModule(arguments, body);
  passes::simplify(module.module());
  REQUIRE(module.verify().empty());
  return opNames(module, "forward");
}

const std::string scalar = parameter("x", "tensor<f32>"), vector = parameter("x", "tensor<4xf32>");

} // namespace

TEST_CASE("neutral elements and double signs go", "[simplify]") {
  CHECK(simplified(scalar, R"(
    %one = cleave.constant dense<1.0> : tensor<f32> : tensor<f32>
    %zero = cleave.constant dense<0.0> : tensor<f32> : tensor<f32>
    %a = cleave.mul %x, %one : tensor<f32>
    %b = cleave.add %zero, %a : tensor<f32>
    %c = cleave.sub %b, %zero : tensor<f32>
    %d = cleave.div %c, %one : tensor<f32>
    %e = cleave.neg %d : tensor<f32>
    %f = cleave.neg %e : tensor<f32>
    %loss = cleave.exp %f : tensor<f32>)") == Names{"cleave.exp"});
  CHECK(simplified(scalar, R"(
    %n = cleave.neg %x : tensor<f32>
    %e = cleave.exp %x : tensor<f32>
    %s = cleave.add %n, %e : tensor<f32>
    %loss = cleave.sub %s, %n : tensor<f32>)") == Names{"cleave.exp", "cleave.sub", "cleave.add"});
}

TEST_CASE("reducing repeated elements", "[simplify]") {
  CHECK(simplified(vector, R"(
    %b = cleave.broadcast %x dims [1] : tensor<4xf32> -> tensor<3x4xf32>
    %loss = cleave.reduce sum %b dims [0, 1] : tensor<3x4xf32> -> tensor<f32>)") ==
        Names{"cleave.reduce", "cleave.constant", "cleave.mul"});
  CHECK(simplified(vector, R"(
    %b = cleave.broadcast %x dims [1] : tensor<4xf32> -> tensor<3x4xf32>
    %m = cleave.reduce max %b dims [0] : tensor<3x4xf32> -> tensor<4xf32>
    %loss = cleave.reduce sum %m dims [0] : tensor<4xf32> -> tensor<f32>)") == Names{"cleave.reduce"});
  GraphModule module = forwardModule(vector, R"(
    %b = cleave.broadcast %x dims [1] : tensor<4xf32> -> tensor<3x4x2xf32>
    %s = cleave.reduce sum %b dims [0] : tensor<3x4x2xf32> -> tensor<4x2xf32>
    %loss = cleave.reduce sum %s dims [0, 1] : tensor<4x2xf32> -> tensor<f32>)");
  passes::simplify(module.module());
  CHECK(evaluate(module, "forward", {{"parameter:x", {{4}, {1, 2, 3, 4}}}}).at("loss").data == std::vector<double>{60});
}

TEST_CASE("transposes fold into products", "[simplify]") {
  GraphModule module = forwardModule(parameter("a", "tensor<4x3xf32>") + ", " + parameter("b", "tensor<5x4xf32>"), R"(
    %at = cleave.transpose %a permutation [1, 0] : tensor<4x3xf32> -> tensor<3x4xf32>
    %bt = cleave.transpose %b permutation [1, 0] : tensor<5x4xf32> -> tensor<4x5xf32>
    %p = cleave.matmul %at, %bt : (tensor<3x4xf32>, tensor<4x5xf32>) -> tensor<3x5xf32>
    %loss = cleave.reduce sum %p dims [0, 1] : tensor<3x5xf32> -> tensor<f32>)");
  passes::simplify(module.module());
  REQUIRE(module.verify().empty());
  CHECK(opNames(module, "forward") == Names{"cleave.matmul", "cleave.reduce"});
  module.module().walk([](ir::MatmulOp op) { CHECK((op.getTransA() && op.getTransB())); });
}

TEST_CASE("equal ops are shared across paths, never across stages or phases", "[simplify]") {
  auto count = [](const std::string &first, const std::string &second) {
    auto names = simplified(scalar, "%a = cleave.exp %x {" + first + "} : tensor<f32>\n%b = cleave.exp %x {" + second +
                                        "} : tensor<f32>\n%loss = cleave.mul %a, %b : tensor<f32>");
    return std::count(names.begin(), names.end(), "cleave.exp");
  };
  CHECK(count(R"(cleave.path = "a")", R"(cleave.path = "b")") == 1);
  CHECK(count(R"(cleave.path = "a")", R"(cleave.path = "a", cleave.phase = "backward")") == 2);
  CHECK(count(R"(cleave.stage = 0 : i64)", R"(cleave.stage = 1 : i64)") == 2);
  CHECK(count(R"(cleave.parameter = "a")", R"(cleave.parameter = "b")") == 2);
}

TEST_CASE("constants are shared within a path only", "[simplify]") {
  auto count = [](const std::string &second) {
    auto names = simplified(scalar, R"(
      %c = cleave.constant {cleave.path = "a"} dense<2.0> : tensor<f32> : tensor<f32>
      %d = cleave.constant {cleave.path = ")" +
                                        second + R"("} dense<2.0> : tensor<f32> : tensor<f32>
      %p = cleave.mul %x, %c : tensor<f32>
      %loss = cleave.sub %p, %d : tensor<f32>)");
    return std::count(names.begin(), names.end(), "cleave.constant");
  };
  CHECK(count("a") == 1);
  CHECK(count("b") == 2);
}

TEST_CASE("operands in either order are equal where the op commutes", "[simplify]") {
  const std::string two = parameter("x", "tensor<f32>") + ", " + parameter("y", "tensor<f32>");
  CHECK(simplified(two, R"(%a = cleave.mul %x, %y : tensor<f32>
    %b = cleave.mul %y, %x : tensor<f32>
    %loss = cleave.add %a, %b : tensor<f32>)") == Names{"cleave.mul", "cleave.add"});
  CHECK(simplified(two, R"(%a = cleave.sub %x, %y : tensor<f32>
    %b = cleave.sub %y, %x : tensor<f32>
    %loss = cleave.add %a, %b : tensor<f32>)")
            .size() == 3);
}

TEST_CASE("what nobody uses goes, and folded constants keep their marks", "[simplify]") {
  GraphModule module = forwardModule(scalar, R"(
    %idle = cleave.exp %x : tensor<f32>
    %more = cleave.log %idle : tensor<f32>
    %c = cleave.constant {cleave.path = "p"} dense<2.0> : tensor<f32> : tensor<f32>
    %b = cleave.broadcast %c dims [] {cleave.path = "p", cleave.stage = 1 : i64} : tensor<f32> -> tensor<3xf32>
    %y = cleave.broadcast %x dims [] {cleave.path = "p"} : tensor<f32> -> tensor<3xf32>
    %m = cleave.pow %y, %b {cleave.path = "p"} : tensor<3xf32>
    %loss = cleave.reduce sum %m dims [0] {cleave.path = "p"} : tensor<3xf32> -> tensor<f32>)");
  passes::simplify(module.module());
  CHECK(countOps(module, "forward", "cleave.exp") == 0);
  CHECK(countOps(module, "forward", "cleave.log") == 0);
  for (mlir::Operation &op : module.module().lookupSymbol<mlir::func::FuncOp>("forward").front().without_terminator()) {
    INFO(op.getName().getStringRef().str());
    CHECK(op.hasAttr(ir::attr::path));
    if (mlir::isa<ir::ConstantOp>(op))
      CHECK(op.hasAttr(ir::attr::stage));
  }
}

TEST_CASE("a slice within one operand of a concatenation reads that operand alone", "[simplify]") {
  const auto sliced = [](int start, int size) {
    const std::string part = "tensor<" + std::to_string(size) + "xf32>";
    return simplified(vector, R"(
    %e = cleave.exp %x : tensor<4xf32>
    %s = cleave.sin %x : tensor<4xf32>
    %c = cleave.concat %e, %s {dim = 0} : (tensor<4xf32>, tensor<4xf32>) -> tensor<8xf32>
    %p = cleave.slice %c starts [)" + std::to_string(start) + "] sizes [" + std::to_string(size) +
                                  "] : tensor<8xf32> -> " + part + R"(
    %loss = cleave.reduce sum %p dims [0] : )" + part + " -> tensor<f32>");
  };
  CHECK(sliced(1, 3) == Names{"cleave.exp", "cleave.slice", "cleave.reduce"});
  CHECK(sliced(4, 4) == Names{"cleave.sin", "cleave.reduce"});
  CHECK(sliced(3, 2) == Names{"cleave.exp", "cleave.sin", "cleave.concat", "cleave.slice", "cleave.reduce"});
}
