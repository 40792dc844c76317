// The choice of shardings, on problems written op by op. Tensors are numbered in the order of their creation.
#include "partitioner/sharding/Assign.h"
#include "runtime/base/Error.h"
#include "tests/unit/partitioner/sharding/Problems.h"

using namespace cleave;
using namespace cleave::partitioner;
using namespace cleave::partitioner::test;

namespace {

Lines solve(const ShardingProblem &problem) { return linesOf(problem, assign(problem)); }

} // namespace

TEST_CASE("linear layers are split by columns, then by rows, and the sum is finished where it is made") {
  Problem problem(meshOf(2, 2));
  const TensorId x = problem.pinned({8, 4}, "dp, _"), w1 = problem.open({6, 4}, "w1"), w2 = problem.open({5, 6}, "w2");
  const TensorId y = problem.linear(problem.relu(problem.linear(x, w1)), w2);
  problem.addReturn({problem.relu(y)}, {{}});
  const ShardingSolution solution = assign(problem);
  CHECK(linesOf(problem, solution) == Lines{"3 = op0 0 1: dp, tp", "4 = op1 3: dp, tp", "5 = op2 4 2: dp, _ | sum tp",
                                            "7 = reshard 5: dp, _", "6 = op3 7: dp, _", "8 = reshard 6: _, _",
                                            "return 8"});
  CHECK(solution.shardingOf(w1).str() == "tp, _");
  CHECK(solution.shardingOf(w2).str() == "_, tp");
  CHECK(solution.table[*solution.named[problem.arguments[w1].name]].str() == "tp, _");
  CHECK(solution.addedOp(5).marks == 2); // stage and path come from the product whose sum the op finishes
  CHECK(solution.origin(8, problem) == 6);
  CHECK(linesOf(problem, assign(problem)) == linesOf(problem, solution));
}

TEST_CASE("what is decided already stays, and other tensors follow it") {
  Problem problem(meshOf(1, 2));
  const TensorId x = problem.pinned({8, 4}, "_, _"), w = problem.pinned({6, 4}, "_, tp");
  problem.names[problem.arguments[w].name].sharding = problem.arguments[w].pinned;
  problem.linear(x, w);
  problem.addReturn({2}, {{}});
  CHECK(solve(problem) ==
        Lines{"3 = reshard 0: _, tp", "2 = op0 3 1: _, _ | sum tp", "4 = reshard 2: _, _", "return 4"});
}

TEST_CASE("ops of one stage and pass share a reshard, others make their own") {
  Problem problem(meshOf(1, 2));
  const TensorId x = problem.pinned({8, 4}, "_, tp");
  const OpRule rule = alongRule(2, 1, 1); // needs dimension 1 whole
  problem.op(OpKind::Other, rule, {x}, {8, 4}, 0);
  problem.op(OpKind::Other, rule, {x}, {8, 4}, 0);
  problem.op(OpKind::Other, rule, {x}, {8, 4}, 1);
  problem.op(OpKind::Other, rule, {x}, {8, 4}, 1, true);
  problem.addReturn({}, {});
  CHECK(solve(problem) == Lines{"5 = reshard 0: _, _", "1 = op0 5: _, _", "2 = op1 5: _, _", "6 = reshard 0: _, _",
                                "3 = op2 6: _, _", "7 = reshard 0: _, _", "4 = op3 7: _, _", "return"});
}

TEST_CASE("constants, and what is computed from them alone, are made again instead of moved") {
  Problem problem(meshOf(2, 1));
  const TensorId x = problem.pinned({8, 4}, "dp, _"), y = problem.pinned({8, 4}, "_, dp");
  const TensorId mask = problem.relu(problem.constant({8, 4}));
  problem.add(x, mask);
  problem.add(x, mask);
  problem.add(y, mask);
  problem.addReturn({}, {});
  CHECK(solve(problem) == Lines{"2 = op0: _, _", "10 = copy of op0: _, dp", "8 = copy of op0: dp, _", "3 = op1 2: _, _",
                                "9 = copy of op1 10: _, dp", "7 = copy of op1 8: dp, _", "4 = op2 0 7: dp, _",
                                "5 = op3 0 7: dp, _", "6 = op4 1 9: _, dp", "return"});
}

TEST_CASE("a bias is decided by the first use of its broadcast, which then follows it") {
  Problem problem(meshOf(1, 2));
  const TensorId x = problem.pinned({8, 6}, "_, tp"), bias = problem.open({6}, "bias"),
                 y = problem.pinned({8, 6}, "tp, _");
  const TensorId wide = problem.op(OpKind::Broadcast, broadcastRule({1}, 2), {bias}, {8, 6});
  problem.add(x, wide);
  problem.add(y, wide);
  problem.addReturn({}, {});
  const ShardingSolution solution = assign(problem);
  CHECK(solution.shardingOf(bias).str() == "tp");
  CHECK(solution.named[problem.arguments[bias].name]);
  CHECK(linesOf(problem, solution) == Lines{"8 = reshard 1: _", "3 = op0 1: _, _", "7 = copy of op0 8: tp, _",
                                            "6 = copy of op0 1: _, tp", "4 = op1 0 6: _, tp", "5 = op2 2 7: tp, _",
                                            "return"});
}

TEST_CASE("a broadcast that is used as it is takes its operand whole, and moves behind what makes that") {
  Problem problem(meshOf(1, 2));
  const TensorId x = problem.pinned({8, 6}, "_, tp"), bias = problem.open({6}, "bias"),
                 y = problem.pinned({8, 6}, "_, _");
  const TensorId wide = problem.op(OpKind::Broadcast, broadcastRule({1}, 2), {bias}, {8, 6});
  problem.add(x, wide); // this op decides the sharding of the bias
  problem.op(OpKind::Other, alongRule(1, 1, 0), {bias}, {6});
  problem.add(y, wide);
  problem.addReturn({}, {});
  CHECK(solve(problem) == Lines{"7 = copy of op0 1: _, tp", "4 = op1 0 7: _, tp", "8 = reshard 1: _", "3 = op0 8: _, _",
                                "5 = op2 8: _", "6 = op3 2 3: _, _", "return"});
}

TEST_CASE("a weight in another type is decided with the weight") {
  Problem problem(meshOf(1, 2));
  const TensorId x = problem.pinned({8, 4}, "_, _"), w = problem.open({4, 6}, "w");
  const TensorId half = problem.op(OpKind::Cast, elementwiseRule(2, 1), {w}, {4, 6});
  const TensorId turned = problem.op(OpKind::Transpose, transposeRule({1, 0}), {half}, {6, 4});
  problem.linear(x, turned);
  problem.addReturn({}, {});
  const ShardingSolution solution = assign(problem);
  CHECK(solution.shardingOf(turned).str() == "tp, _");
  CHECK(solution.shardingOf(half).str() == "_, tp");
  CHECK(solution.shardingOf(w).str() == "_, tp");
}

TEST_CASE("marks split what they name and leave the rest as it is") {
  Problem problem(meshOf(2, 2));
  problem.marks.push_back({std::nullopt, sharding("tp", {4}).dims[0]});
  problem.marks.push_back({sharding("_", {8}).dims[0], std::nullopt});
  const TensorId x = problem.pinned({8, 4}, "dp, _");
  for (int mark : {0, 1})
    problem.addOp({.kind = OpKind::Mark,
                   .rule = problem.rules.add(elementwiseRule(2, 1, 1, SumPassing::Linear)),
                   .operands = {x},
                   .mark = mark},
                  {{.shape = {8, 4}}});
  problem.addReturn({}, {});
  CHECK(solve(problem) ==
        Lines{"3 = reshard 0: dp, tp", "1 = op0 3: dp, tp", "4 = reshard 0: _, _", "2 = op1 4: _, _", "return"});
}

TEST_CASE("a sum that all read split the same way is finished split") {
  Problem problem(meshOf(1, 2));
  const TensorId x = problem.pinned({8, 4}, "_, tp"), w = problem.pinned({6, 4}, "_, tp"),
                 y = problem.pinned({8, 6}, "tp, _");
  for (TensorId named : {w, y})
    problem.names[problem.arguments[named].name].sharding = problem.arguments[named].pinned;
  const TensorId z = problem.linear(x, w);
  problem.add(y, z);
  problem.addReturn({}, {});
  CHECK(solve(problem) == Lines{"3 = op0 0 1: _, _ | sum tp", "5 = reshard 3: tp, _", "4 = op1 2 5: tp, _", "return"});
}

TEST_CASE("gradients lie as their parameters, and are summed over dp once an iteration") {
  Problem problem(meshOf(2, 2));
  const TensorId x = problem.pinned({8, 4}, "dp, _"), w = problem.open({6, 4}, "w");
  const TensorId y = problem.linear(x, w);
  const TensorId gradient = problem.op(OpKind::Other, matmulRule(2, 2, true, false), {y, x}, {6, 4}, 0, true);
  const NameId name = problem.arguments[w].name;
  problem.addReturn({gradient}, {{.follows = name, .mayBePartial = true, .gradient = true}});
  CHECK(assign(problem).shardingOf(gradient).str() == "tp, _ | sum dp");
  CHECK(solve(problem).back() == "return 3");
}

TEST_CASE("terms of a tied parameter's gradient are finished alike in all stages") {
  Problem problem(meshOf(2, 1));
  const TensorId x = problem.pinned({8, 4}, "dp, _"), w = problem.open({6, 4}, "w"), y = problem.pinned({6, 4}, "_, _");
  const TensorId first = problem.op(OpKind::Other, matmulRule(2, 2, true, false), {problem.linear(x, w), x}, {6, 4});
  const TensorId second = problem.op(OpKind::Elementwise, elementwiseRule(2, 1), {y}, {6, 4}, 1);
  const Result result{.follows = problem.arguments[w].name, .mayBePartial = true, .gradient = true};
  problem.addReturn({first, second}, {result, result});
  const ShardingSolution solution = assign(problem);
  CHECK(solution.shardingOf(first).str() == "_, _ | sum dp");
  const TensorId taken = solution.operandsOf(solution.problemOps - 1)[0]; // the other term is not split
  CHECK(solution.shardingOf(taken).str() == "_, _");
  CHECK(solution.addedOp(solution.problemOps + (taken - solution.problemTensors)).finishesGradient);
}

TEST_CASE("a tensor in a library's own form cannot move") {
  Problem problem(meshOf(2, 1));
  const TensorId x = problem.pinned({8, 4}, "dp, _");
  problem.tensors[x].fixed = true;
  problem.addReturn({x}, {{}});
  CHECK_THROWS_WITH(assign(problem), Catch::Contains("max-pool"));
}

TEST_CASE("parameters that nothing uses are whole") {
  Problem problem(meshOf(2, 2));
  const TensorId w = problem.open({6, 4}, "w");
  problem.addReturn({}, {});
  const ShardingSolution solution = assign(problem);
  CHECK(solution.shardingOf(w).str() == "_, _");
  CHECK(solution.named[problem.arguments[w].name]);
}
