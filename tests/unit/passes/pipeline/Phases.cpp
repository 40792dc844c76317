// Phases of passes: an error reaches the caller as it was thrown, and invalid IR is reported with the name of its
// phase.
#include "passes/pipeline/PhasePipeline.h"

#include "ir/GraphModule.h"
#include "passes/rewrite/ThrowingPass.h"
#include "runtime/base/Error.h"

#include <catch2/catch.hpp>
#include <functional>

using namespace cleave;
using namespace cleave::passes;

namespace {

/// A pass that runs a function given by the test.
struct AnyPass : ThrowingPass<mlir::PassWrapper<AnyPass, mlir::OperationPass<mlir::ModuleOp>>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(AnyPass)
  explicit AnyPass(std::function<void(mlir::ModuleOp)> does) : does(std::move(does)) {}
  void work() override { does(getOperation()); }
  std::function<void(mlir::ModuleOp)> does;
};

std::unique_ptr<AnyPass> pass(std::function<void(mlir::ModuleOp)> does) {
  return std::make_unique<AnyPass>(std::move(does));
}

GraphModule module() {
  return GraphModule::parse(R"(func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = cleave.exp %x : tensor<4xf32>
  return %0 : tensor<4xf32>
})",
                            "phases");
}

/// Makes the module invalid: gives the exp op a result type that differs from its operand's type.
void makeInvalid(mlir::ModuleOp module) {
  module.walk([](ir::ExpOp op) {
    op.getResult().setType(mlir::RankedTensorType::get({5}, mlir::Float32Type::get(op->getContext())));
  });
}

const std::vector<std::string> nothing;

} // namespace

TEST_CASE("phases run in order, and have their names") {
  GraphModule made = module();
  std::string ran;
  PhasePipeline phases(&made.context(), nothing);
  phases.add("first", pass([&](mlir::ModuleOp) { ran += "a"; }), pass([&](mlir::ModuleOp) { ran += "b"; }));
  phases.add("empty");
  phases.add("last", pass([&](mlir::ModuleOp) { ran += "c"; }));
  phases.run(made.module());
  CHECK(ran == "abc");
  CHECK(phases.names() == std::vector<std::string>{"first", "empty", "last"});
}

TEST_CASE("what a pass throws comes out with its status, and no later pass runs") {
  for (const Status status : {Status::User, Status::Environment, Status::Internal}) {
    GraphModule made = module();
    bool later = false;
    PhasePipeline phases(&made.context(), nothing);
    phases.add("first", pass([&](mlir::ModuleOp) { throw Error(status, "model.cpp:3:5: error: a rule"); }));
    phases.add("last", pass([&](mlir::ModuleOp) { later = true; }));
    try {
      phases.run(made.module());
      FAIL("nothing was thrown");
    } catch (const Error &error) {
      CHECK(error.status == status);
      CHECK(error.what() == std::string("model.cpp:3:5: error: a rule"));
    }
    CHECK_FALSE(later);
  }
}

TEST_CASE("an error that is none of ours comes out as well") {
  GraphModule made = module();
  PhasePipeline phases(&made.context(), nothing);
  phases.add("first", pass([](mlir::ModuleOp) { throw std::bad_alloc(); }));
  CHECK_THROWS_AS(phases.run(made.module()), std::bad_alloc);
}

TEST_CASE("invalid IR is an internal error that names the phase which left it") {
  GraphModule made = module();
  PhasePipeline phases(&made.context(), nothing);
  phases.add("first", pass([](mlir::ModuleOp) {}));
  phases.add("second", pass([](mlir::ModuleOp) {}), pass(makeInvalid), pass([](mlir::ModuleOp) {}));
  try {
    phases.run(made.module());
    FAIL("nothing was thrown");
  } catch (const Error &error) {
    CHECK(error.status == Status::Internal);
    CHECK(std::string(error.what()).starts_with("invalid IR after second: "));
  }
}

TEST_CASE("a first phase without passes looks at what is given") {
  GraphModule made = module();
  makeInvalid(made.module());
  PhasePipeline phases(&made.context(), nothing);
  phases.add("given");
  phases.add("first", pass([](mlir::ModuleOp) { FAIL("it ran on invalid IR"); }));
  CHECK_THROWS_WITH(phases.run(made.module()), Catch::StartsWith("invalid IR after given: "));
}
