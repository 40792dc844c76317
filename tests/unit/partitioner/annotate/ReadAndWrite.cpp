// Reading a function as a sharding problem, and writing a solution onto a function.
#include "ir/GraphModule.h"
#include "ir/dist/Dist.h"
#include "partitioner/annotate/ReadProblem.h"
#include "partitioner/annotate/WriteSolution.h"
#include "partitioner/sharding/Assign.h"

#include <catch2/catch.hpp>

using namespace cleave;
using namespace cleave::partitioner;

namespace {

const char *twoLayers = R"(
func.func @f(%x: tensor<8x4xf32> {cleave.kind = "input", cleave.name = "x"},
             %w: tensor<6x4xbf16> {cleave.kind = "parameter", cleave.name = "w"},
             %m: tensor<6x4xf32> {cleave.kind = "state", cleave.name = "w.momentum"})
    -> (tensor<f32> {cleave.kind = "loss"}, tensor<6x4xf32> {cleave.kind = "state", cleave.name = "w.momentum"}) {
  %c = cleave.constant {cleave.stage = 0 : i64} dense<0.5> : tensor<f32> : tensor<f32>
  %b = cleave.broadcast %c dims [] {cleave.stage = 0 : i64} : tensor<f32> -> tensor<8x6xf32>
  %v = cleave.cast %w {cleave.stage = 0 : i64} : tensor<6x4xbf16> -> tensor<6x4xf32>
  %y = cleave.matmul %x, %v {transB, cleave.path = "fc", cleave.stage = 0 : i64} : (tensor<8x4xf32>, tensor<6x4xf32>) -> tensor<8x6xf32>
  %h = cleave.shard_hint %y ["", "whole"] {cleave.stage = 0 : i64} : tensor<8x6xf32>
  %z = cleave.mul %h, %b {cleave.stage = 1 : i64, cleave.phase = "backward"} : tensor<8x6xf32>
  %l = cleave.reduce sum %z dims [0, 1] {cleave.stage = 1 : i64} : tensor<8x6xf32> -> tensor<f32>
  return %l, %m : tensor<f32>, tensor<6x4xf32>
}
)";

mlir::func::FuncOp functionIn(const GraphModule &module) {
  return mlir::cast<mlir::func::FuncOp>(module.function("f"));
}

Decisions strategyFor(int64_t dp, int64_t tp) {
  Decisions strategy;
  strategy.mesh = {{{"dp", dp}, {"tp", tp}, {"pp", 1}}};
  return strategy;
}

} // namespace

TEST_CASE("a function reads as a problem") {
  GraphModule module = GraphModule::parse(twoLayers, "test");
  const ShardingProblem problem = readProblem(functionIn(module), strategyFor(2, 2), NamedShardings());
  REQUIRE(problem.arguments.size() == 3);
  CHECK(problem.arguments[0].pinned->str() == "dp, _");
  CHECK_FALSE(problem.arguments[1].pinned); // open
  CHECK(problem.arguments[2].pinned->str() == "_, _");
  CHECK(problem.names[problem.arguments[1].name].name == "w");
  CHECK(problem.tensors[1].elementBits == 16);
  CHECK(problem.tensors[1].uses == std::vector<Use>{{2, 0}});
  std::vector<OpKind> kinds;
  for (const ProblemOp &op : problem.ops)
    kinds.push_back(op.kind);
  CHECK(kinds == std::vector<OpKind>{OpKind::Free, OpKind::Broadcast, OpKind::Cast, OpKind::Other, OpKind::Mark,
                                     OpKind::Elementwise, OpKind::Other, OpKind::Return});
  CHECK(problem.ruleOf(3) == matmulRule(2, 2, false, true));
  CHECK(problem.ruleOf(5).sums == SumPassing::Product);
  CHECK(problem.ops[5].stage == 1);
  CHECK(problem.ops[5].backward);
  CHECK(problem.tensors[problem.ops[1].results[0]].splat); // a broadcast of a constant
  CHECK_FALSE(problem.tensors[problem.ops[5].results[0]].splat);
  CHECK_FALSE(problem.marks[0][0]);
  REQUIRE(problem.marks[0][1]);
  CHECK_FALSE(problem.marks[0][1]->split());
  CHECK(problem.results[0].mayBePartial);
  CHECK(problem.results[0].follows == -1);
  CHECK(problem.names[problem.results[1].follows].name == "w"); // a state has the sharding of its parameter
}

TEST_CASE("what is known already, and what a strategy says, pins arguments") {
  GraphModule module = GraphModule::parse(twoLayers, "test");
  NamedShardings named{{"w", *Sharding::parse("tp, _")}};
  REQUIRE(named["w"].resolve({6, 4}));
  const ShardingProblem known = readProblem(functionIn(module), strategyFor(2, 2), named);
  CHECK(known.arguments[1].pinned->str() == "tp, _");
  CHECK(known.arguments[2].pinned->str() == "tp, _");
  Decisions strategy = strategyFor(2, 2);
  strategy.shard = {{"w", {{"1", "tp"}}, "file"}};
  const ShardingProblem ruled = readProblem(functionIn(module), strategy, NamedShardings());
  CHECK(ruled.arguments[1].pinned->str() == "_, tp");
  CHECK(ruled.names[ruled.arguments[1].name].sharding->str() == "_, tp");
  CHECK_THROWS_WITH(readProblem(functionIn(module), strategyFor(16, 1), NamedShardings()),
                    Catch::Contains("8 rows, fewer than dp = 16"));
}

TEST_CASE("a solution is written as attributes, reshards and copies") {
  GraphModule module = GraphModule::parse(twoLayers, "test");
  mlir::func::FuncOp function = functionIn(module);
  const ShardingProblem problem = readProblem(function, strategyFor(2, 2), NamedShardings());
  const ShardingSolution solution = assign(problem);
  writeSolution(function, solution);
  CHECK(module.verify().empty());
  CHECK(shardingOf(function.getArgument(1)).str() == "tp, _"); // splits the columns of the product
  size_t ops = 0;
  std::vector<std::string> reshards;
  function.walk([&](mlir::Operation *op) {
    if (op == function.getOperation())
      return;
    const OpId id = solution.order[ops++];
    CHECK(solution.isReshard(id) == mlir::isa<dist::ReshardOp>(op));
    for (mlir::Value result : op->getResults()) {
      const TensorId tensor = solution.isAdded(id) ? solution.resultOf(id) : problem.ops[id].results[0];
      CHECK(shardingOf(result) == solution.shardingOf(tensor));
    }
    if (auto reshard = mlir::dyn_cast<dist::ReshardOp>(op))
      reshards.push_back(reshard.getFrom().getText().str() + " -> " + reshard.getTo().getText().str());
  });
  CHECK(ops == solution.order.size());
  // One reshard for the mark, one for the result of the state.
  CHECK(reshards == std::vector<std::string>{"dp, tp -> dp, _", "_, _ -> tp, _"});
}
