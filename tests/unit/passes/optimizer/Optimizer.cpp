// @update: its signature, its settings, and steps computed by hand. tests/parity compares steps with PyTorch's.
#include "passes/optimizer/Optimizer.h"

#include "ir/graph/Graph.h"
#include "passes/differentiate/Differentiate.h"
#include "runtime/base/Error.h"
#include "tests/unit/passes/Programs.h"

#include "mlir/AsmParser/AsmParser.h"
#include <catch2/catch.hpp>
#include <cmath>
#include <set>

using namespace cleave;
using namespace cleave::testing;

namespace {

/// @train and @update of two parameters with a static count of 4; `extra` are attributes of the second parameter.
GraphModule withOptimizer(const std::string &optimizer, const std::string &extra = "") {
  GraphModule module =
      forwardModule(parameter("a.weight", "tensor<2xf32>") + ", " + parameter("b", "tensor<f32>", extra), R"(
    %s = cleave.reduce sum %a_weight dims [0] : tensor<2xf32> -> tensor<f32>
    %loss = cleave.mul %s, %b : tensor<f32>)");
  passes::differentiate(module.module(), 1);
  module.module()->setAttr(ir::attr::optimizer, mlir::parseAttribute(optimizer, &module.context()));
  passes::buildOptimizer(module.module());
  return module;
}

Arrays step(const GraphModule &module, Arrays arguments) { return evaluate(module, "update", std::move(arguments)); }

Arrays basic(double lr, double weight = 4) {
  return {{"parameter:a.weight", {{2}, {1, -2}}},
          {"gradient:a.weight", {{2}, {0.5, 0.25}}},
          {"parameter:b", {{}, {3}}},
          {"gradient:b", {{}, {-1}}},
          {"scalar:lr", {{}, {lr}}},
          {"scalar:step", {{}, {1}}},
          {"metric:weight", {{}, {weight}}}};
}

std::vector<std::string> argumentNames(const GraphModule &module) {
  auto update = module.module().lookupSymbol<mlir::func::FuncOp>("update");
  std::vector<std::string> names;
  for (unsigned i = 0; i < update.getNumArguments(); ++i)
    names.push_back(update.getArgAttrOfType<mlir::StringAttr>(i, ir::attr::kind).str() + ":" +
                    update.getArgAttrOfType<mlir::StringAttr>(i, ir::attr::name).str());
  return names;
}

} // namespace

TEST_CASE("arguments are parameters, gradients, states, scalars, the weight", "[optimizer]") {
  GraphModule module = withOptimizer(R"({name = "adam"})");
  CHECK(module.verify().empty());
  CHECK(argumentNames(module) ==
        std::vector<std::string>{"parameter:a.weight", "parameter:b", "gradient:a.weight", "gradient:b",
                                 "state:a.weight.exp_avg", "state:a.weight.exp_avg_sq", "state:b.exp_avg",
                                 "state:b.exp_avg_sq", "scalar:lr", "scalar:step", "metric:weight"});
  auto update = module.module().lookupSymbol<mlir::func::FuncOp>("update");
  CHECK(update.getNumResults() == 6);
  auto init = update.getArgAttrOfType<ir::InitAttr>(4, ir::attr::init);
  CHECK((init && init.getDistribution() == "constant" && init.getA() == 0));
  CHECK(update.getResultAttrOfType<mlir::StringAttr>(2, ir::attr::name).getValue() == "a.weight.exp_avg");
}

TEST_CASE("ops of a parameter name it and its module", "[optimizer]") {
  GraphModule module = withOptimizer(R"({name = "sgd", clip_norm = 1.0})");
  auto update = module.module().lookupSymbol<mlir::func::FuncOp>("update");
  std::set<std::pair<const void *, const void *>> splats;
  for (mlir::Operation &op : update.front().without_terminator()) {
    auto name = op.getAttrOfType<mlir::StringAttr>("cleave.parameter");
    auto path = op.getAttrOfType<mlir::StringAttr>(ir::attr::path);
    if (mlir::isa<ir::ConstantOp, ir::BroadcastOp>(op)) { // shared by all parameters of a shape
      auto constant = mlir::dyn_cast<ir::ConstantOp>(op);
      mlir::Value repeated = constant ? mlir::Value() : op.getOperand(0);
      CHECK((!name && !path));
      CHECK(splats
                .insert({constant ? constant.getValue().getAsOpaquePointer() : repeated.getAsOpaquePointer(),
                         op.getResult(0).getType().getAsOpaquePointer()})
                .second);
      continue;
    }
    REQUIRE((path != nullptr));
    CHECK(path.getValue() == (!name ? "optimizer" : name.getValue() == "a.weight" ? "a" : ""));
  }
  CHECK(splats.size() > 2);
}

TEST_CASE("one step of plain SGD by hand", "[optimizer]") {
  Arrays results = step(withOptimizer(R"({name = "sgd"})"), basic(0.1));
  CHECK(results.at("parameter:a.weight").data[0] == Approx(0.95));
  CHECK(results.at("parameter:a.weight").data[1] == Approx(-2.025));
  CHECK(results.at("parameter:b").data[0] == Approx(3.1));
}

TEST_CASE("gradients are rescaled by static count / weight", "[optimizer]") {
  Arrays results = step(withOptimizer(R"({name = "sgd"})"), basic(0.1, 2));
  CHECK(results.at("parameter:b").data[0] == Approx(3.2));
  // A batch of weight 0 changes no parameter, and gives no NaN.
  Arrays nothing = basic(0.1, 0);
  nothing["gradient:b"] = {{}, {0}};
  CHECK(step(withOptimizer(R"({name = "sgd"})"), nothing).at("parameter:b").data[0] == 3);
}

TEST_CASE("one norm over all parameters clips", "[optimizer]") {
  Arrays results = step(withOptimizer(R"({name = "sgd", clip_norm = 0.5})"), basic(1));
  double norm = std::sqrt(0.25 + 0.0625 + 1);
  CHECK(results.at("parameter:b").data[0] == Approx(3 + 0.5 / norm));
  CHECK(results.at("parameter:a.weight").data[0] == Approx(1 - 0.25 / norm));
  // A norm below the bound changes nothing.
  CHECK(step(withOptimizer(R"({name = "sgd", clip_norm = 2.0})"), basic(1)).at("parameter:b").data[0] == 4);
}

TEST_CASE("the first step of Adam moves by lr times the sign", "[optimizer]") {
  Arrays arguments = basic(0.1);
  for (const char *slot : {"exp_avg", "exp_avg_sq"}) {
    arguments[std::string("state:a.weight.") + slot] = {{2}, {0, 0}};
    arguments[std::string("state:b.") + slot] = {{}, {0}};
  }
  Arrays results = step(withOptimizer(R"({name = "adam"})"), arguments);
  CHECK(results.at("parameter:a.weight").data[0] == Approx(0.9).epsilon(1e-6));
  CHECK(results.at("parameter:b").data[0] == Approx(3.1).epsilon(1e-6));
  CHECK(results.at("state:b.exp_avg").data[0] == Approx(-0.1));
  CHECK(results.at("state:b.exp_avg_sq").data[0] == Approx(0.001));
}

TEST_CASE("a parameter's own learning rate and decay come first", "[optimizer]") {
  Arrays results = step(withOptimizer(R"({name = "sgd", weight_decay = 0.5})",
                                      ", cleave.lr_scale = 2.0 : f64, cleave.weight_decay = 0.0 : f64"),
                        basic(0.1));
  CHECK(results.at("parameter:b").data[0] == Approx(3.2));
  CHECK(results.at("parameter:a.weight").data[0] == Approx(1 - 0.1 * (0.5 + 0.5)));
}

TEST_CASE("settings that cannot be are errors", "[optimizer]") {
  CHECK_THROWS_WITH(withOptimizer(R"({name = "adagrad"})"), Catch::Contains("\"adagrad\""));
  CHECK_THROWS_WITH(withOptimizer(R"({name = "sgd", dampening = 0.5})"), Catch::Contains("dampening"));
  CHECK_THROWS_WITH(withOptimizer(R"({name = "adam", beta2 = 1.0})"),
                    Catch::Contains("beta2 must be in [0, 1), found 1"));
  CHECK_THROWS_WITH(withOptimizer(R"({name = "sgd", nesterov = true})"), Catch::Contains("momentum must be positive"));
  CHECK_THROWS_WITH(withOptimizer(R"({momentum = 0.5})"), Catch::Contains("no name"));
}
