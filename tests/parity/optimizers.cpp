// Compares @update in the reference interpreter with five steps of PyTorch's optimizers (goldens/optimizers.json).
#include "passes/optimizer/Optimizer.h"

#include "ir/graph/Graph.h"
#include "passes/differentiate/Differentiate.h"
#include "passes/simplify/Simplify.h"
#include "tests/unit/passes/Programs.h"

#include "mlir/AsmParser/AsmParser.h"
#include <catch2/catch.hpp>

using namespace cleave;
using namespace cleave::testing;

namespace {

/// A module with @update for a weight [3, 4] and a bias [4], with the static count of the goldens.
GraphModule updateModule(const nlohmann::json &example) {
  GraphModule module = forwardModule(parameter("a.weight", "tensor<3x4xf32>") + ", " +
                                         parameter("a.bias", "tensor<4xf32>", example["bias_attributes"]),
                                     R"(
    %b = cleave.broadcast %a_bias dims [1] : tensor<4xf32> -> tensor<3x4xf32>
    %p = cleave.mul %a_weight, %b : tensor<3x4xf32>
    %loss = cleave.reduce sum %p dims [0, 1] : tensor<3x4xf32> -> tensor<f32>)");
  passes::differentiate(module.module(), example["static_count"].get<int64_t>() / 4);
  std::string settings = example["optimizer"];
  module.module()->setAttr(ir::attr::optimizer, mlir::parseAttribute(settings, &module.context()));
  passes::buildOptimizer(module.module());
  passes::simplify(module.module());
  return module;
}

/// The initial parameters, and zeros for the optimizer's states.
Arrays initialArguments(const GraphModule &module, const nlohmann::json &example) {
  Arrays arguments;
  for (const auto &[name, value] : example["initial"].items())
    arguments["parameter:" + name] = arrayOf(value);
  auto update = module.module().lookupSymbol<mlir::func::FuncOp>("update");
  for (unsigned i = 0; i < update.getNumArguments(); ++i) {
    if (update.getArgAttrOfType<mlir::StringAttr>(i, ir::attr::kind).getValue() != "state")
      continue;
    auto type = mlir::cast<mlir::RankedTensorType>(update.getArgument(i).getType());
    arguments["state:" + update.getArgAttrOfType<mlir::StringAttr>(i, ir::attr::name).str()] = {
        type.getShape().vec(), std::vector<double>(static_cast<size_t>(type.getNumElements()), 0.0)};
  }
  return arguments;
}

} // namespace

TEST_CASE("optimizers take PyTorch's steps", "[parity]") {
  for (const auto &example : golden("optimizers.json")) {
    std::string name = example["name"];
    DYNAMIC_SECTION(name) {
      GraphModule module = updateModule(example);
      REQUIRE(module.verify().empty());
      Arrays arguments = initialArguments(module, example);
      arguments["scalar:lr"] = {{}, {example["lr"].get<double>()}};
      for (size_t step = 0; step < example["gradients"].size(); ++step) {
        arguments["scalar:step"] = {{}, {static_cast<double>(step + 1)}};
        arguments["metric:weight"] = {{}, {example["weights"][step].get<double>()}};
        for (const auto &[parameter, gradient] : example["gradients"][step].items())
          arguments["gradient:" + parameter] = arrayOf(gradient);
        for (auto &[key, value] : evaluate(module, "update", arguments))
          arguments[key] = value;
        for (const auto &[parameter, value] : example["parameters"][step].items()) {
          INFO(parameter << " after step " << step + 1);
          CHECK(apart(arguments.at("parameter:" + parameter), arrayOf(value)) < 2e-6);
        }
        if (example.contains("averages"))
          for (const auto &[parameter, value] : example["averages"][step].items()) {
            INFO("the average of " << parameter << " after step " << step + 1);
            CHECK(apart(arguments.at("state:" + parameter + ".ema"), arrayOf(value)) < 2e-6);
          }
      }
    }
  }
}
