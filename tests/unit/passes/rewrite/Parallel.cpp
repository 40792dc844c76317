// Parallel work on functions: every function is changed, errors are ordered, and dialects must be loaded beforehand.
#include "passes/rewrite/Parallel.h"

#include "ir/GraphModule.h"
#include "runtime/base/Error.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include <atomic>
#include <catch2/catch.hpp>
#include <fmt/format.h>

using namespace cleave;

namespace {

struct Functions {
  GraphModule graph;
  llvm::SmallVector<mlir::func::FuncOp> list;
  explicit Functions(int count) : graph(GraphModule::parse(text(count), "test")) {
    for (auto function : graph.module().getOps<mlir::func::FuncOp>())
      list.push_back(function);
  }
  static std::string text(int count) {
    std::string all;
    for (int i = 0; i < count; ++i)
      all += fmt::format("func.func @f{}(%x: tensor<f32>) -> tensor<f32> {{ return %x : tensor<f32> }}\n", i);
    return all;
  }
};

} // namespace

TEST_CASE("every function is changed once", "[parallel]") {
  Functions functions(20);
  passes::forEachInParallel(functions.list, [](mlir::func::FuncOp function) {
    const auto before = function->getAttrOfType<mlir::StringAttr>("seen"); // Catch2's checks support one thread only
    function->setAttr("seen", mlir::Builder(function).getStringAttr(before ? "twice" : function.getName().str()));
  });
  for (mlir::func::FuncOp function : functions.list)
    CHECK(function->getAttrOfType<mlir::StringAttr>("seen").getValue() == function.getName());
  passes::forEachInParallel({}, [](mlir::func::FuncOp) { FAIL(); });
}

TEST_CASE("the first function's error is thrown when all have ended", "[parallel]") {
  Functions functions(8);
  std::atomic<int> ended = 0;
  try {
    passes::forEachInParallel(functions.list, [&](mlir::func::FuncOp function) {
      ++ended;
      if (function.getName() == "f3" || function.getName() == "f6")
        throw userError(function.getName().str());
    });
    FAIL();
  } catch (const Error &error) {
    CHECK(error.what() == std::string("f3"));
  }
  CHECK(ended == 8);
}

TEST_CASE("a dialect that is loaded by a thread is an error", "[parallel]") {
  Functions functions(1); // with several functions this would also be a race
  CHECK_THROWS_WITH(passes::forEachInParallel(functions.list,
                                              [](mlir::func::FuncOp function) {
                                                function.getContext()->loadDialect<mlir::arith::ArithDialect>();
                                              }),
                    Catch::Contains("a dialect was loaded"));
}
