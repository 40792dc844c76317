// Phases of passes: an error reaches the caller as it was thrown, and invalid IR is reported with the name of its
// phase.
#include "passes/pipeline/PhaseRunner.h"

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

TEST_CASE("the passes of a phase run in order, and phases have names") {
  GraphModule made = module();
  std::string ran;
  const PhaseRunner phases({"first", "last"}, nothing);
  phases.run("first", made.module(), pass([&](mlir::ModuleOp) { ran += "a"; }),
             pass([&](mlir::ModuleOp) { ran += "b"; }));
  phases.end("last", made.module());
  CHECK(ran == "ab");
  const std::vector<std::string> wrong = {"last", "lats"};
  CHECK_THROWS_WITH(PhaseRunner({"first", "last"}, wrong),
                    "--print-ir-after: there is no phase \"lats\"; there are first, last");
}

TEST_CASE("what a pass throws comes out with its status, and no later pass runs") {
  for (const Status status : {Status::User, Status::Environment, Status::Internal}) {
    GraphModule made = module();
    bool later = false;
    try {
      PhaseRunner({}, nothing)
          .run("first", made.module(), pass([&](mlir::ModuleOp) { throw Error(status, "model.cpp:3:5: error: a rule"); }),
               pass([&](mlir::ModuleOp) { later = true; }));
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
  CHECK_THROWS_AS(
      PhaseRunner({}, nothing).run("first", made.module(), pass([](mlir::ModuleOp) { throw std::bad_alloc(); })),
      std::bad_alloc);
}

TEST_CASE("invalid IR is an internal error that names the phase which left it") {
  GraphModule made = module();
  const PhaseRunner phases({}, nothing);
  phases.run("first", made.module(), pass([](mlir::ModuleOp) {}));
  CHECK_THROWS_WITH(phases.run("second", made.module(), pass([](mlir::ModuleOp) {}), pass(makeInvalid),
                               pass([](mlir::ModuleOp) {})),
                    Catch::StartsWith("invalid IR after second: "));
  try {
    phases.end("third", made.module());
    FAIL("nothing was thrown");
  } catch (const Error &error) {
    CHECK(error.status == Status::Internal);
  }
}
