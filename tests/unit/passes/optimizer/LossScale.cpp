// The loss scale as a state machine: every transition, on @update alone.
#include "passes/precision/LossScale.h"

#include "ir/graph/Graph.h"
#include "passes/differentiate/Differentiate.h"
#include "passes/optimizer/Optimizer.h"
#include "tests/unit/passes/Programs.h"

#include "mlir/AsmParser/AsmParser.h"
#include <catch2/catch.hpp>
#include <limits>

using namespace cleave;
using namespace cleave::testing;

namespace {

/// One parameter under an optimizer, with a loss scale; its gradient is 1 before scaling.
class Machine {
public:
  Machine(const LossScale &scale, const std::string &optimizer = R"({name = "sgd", momentum = 0.5})")
      : module(forwardModule(parameter("w", "tensor<f32>"), R"(
    %one = cleave.constant dense<1.0> : tensor<f32> : tensor<f32>
    %loss = cleave.mul %w, %one : tensor<f32>)")) {
    passes::setLossScale(module.module(), scale);
    passes::differentiate(module.module(), 1);
    module.module()->setAttr(ir::attr::optimizer, mlir::parseAttribute(optimizer, &module.context()));
    passes::buildOptimizer(module.module());
    auto update = module.module().lookupSymbol<mlir::func::FuncOp>("update");
    for (unsigned i = 0; i < update.getNumArguments(); ++i)
      if (auto init = update.getArgAttrOfType<ir::InitAttr>(i, ir::attr::init))
        values["state:" + update.getArgAttrOfType<mlir::StringAttr>(i, ir::attr::name).str()] = {{}, {init.getA()}};
    values["parameter:w"] = {{}, {3}};
    values.erase("state:w");
  }

  /// Runs one step; `gradient` is the value before scaling.
  void step(double gradient) {
    Arrays arguments = values;
    ++steps;
    arguments["gradient:w"] = {{}, {gradient * scale()}};
    arguments["scalar:lr"] = {{}, {0.1}};
    arguments["scalar:step"] = {{}, {steps}};
    arguments["metric:weight"] = {{}, {4}};
    for (auto &[name, value] : evaluate(module, "update", std::move(arguments)))
      values[name] = value;
  }

  double scale() { return values.at("state:loss_scale").data[0]; }
  double clean() { return values.at("state:loss_scale.clean_steps").data[0]; }
  double skipped() { return values.at("state:loss_scale.skipped_steps").data[0]; }
  double w() { return values.at("parameter:w").data[0]; }
  Arrays values;
  GraphModule module;

private:
  double steps = 0;
};

constexpr double infinity = std::numeric_limits<double>::infinity(),
                 notANumber = std::numeric_limits<double>::quiet_NaN();

} // namespace

TEST_CASE("a clean step counts and moves the parameter as without a scale", "[lossScale]") {
  Machine machine({});
  CHECK(machine.scale() == 65536);
  machine.step(0.5);
  CHECK(machine.w() == Approx(2.95)); // static count / weight is 1
  CHECK(machine.clean() == 1);
  CHECK(machine.skipped() == 0);
  CHECK(machine.scale() == 65536);
}

TEST_CASE("the last clean step of an interval doubles the scale and begins anew", "[lossScale]") {
  Machine machine({.initial = 8, .growthInterval = 3});
  for (double expected : {8, 8, 16, 16, 16, 32}) {
    machine.step(0.5);
    CHECK(machine.scale() == expected);
  }
  CHECK(machine.clean() == 0);
}

TEST_CASE("overflow halves the scale, skips the step, and begins anew", "[lossScale]") {
  for (double bad : {infinity, -infinity, notANumber}) {
    Machine machine({.initial = 8, .growthInterval = 3});
    machine.step(0.5);
    machine.step(0.5);
    const double before = machine.w(), momentum = machine.values.at("state:w.momentum").data[0];
    machine.step(bad);
    CHECK(machine.scale() == 4);
    CHECK(machine.clean() == 0);
    CHECK(machine.skipped() == 1);
    CHECK(machine.w() == before);
    CHECK(machine.values.at("state:w.momentum").data[0] == momentum);
    machine.step(0.5);
    CHECK(machine.w() < before);
    CHECK(machine.clean() == 1);
    CHECK(machine.skipped() == 1);
  }
}

TEST_CASE("the scale does not grow beyond its largest", "[lossScale]") {
  Machine machine({.initial = 8388608, .growthInterval = 1});
  machine.step(0.5);
  CHECK(machine.scale() == 16777216);
  machine.step(0.5);
  CHECK(machine.scale() == 16777216);
}

TEST_CASE("a fixed scale stays, and overflow still skips", "[lossScale]") {
  Machine machine({.initial = 128, .dynamic = false, .growthInterval = 1});
  machine.step(0.5);
  const double before = machine.w();
  machine.step(infinity);
  CHECK(machine.scale() == 128);
  CHECK(machine.w() == before);
  CHECK(machine.skipped() == 1);
}

TEST_CASE("Adam's bias correction counts the steps that were taken", "[lossScale]") {
  Machine skipping({}, R"({name = "adam"})"), plain({}, R"({name = "adam"})");
  skipping.step(infinity);
  for (double gradient : {0.5, 0.25, -1.0}) {
    skipping.step(gradient);
    plain.step(gradient);
    CHECK(skipping.w() == Approx(plain.w()).epsilon(1e-6));
  }
}
