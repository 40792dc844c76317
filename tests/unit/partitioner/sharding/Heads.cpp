// Where products are split by default.
#include "partitioner/sharding/Heads.h"
#include "tests/unit/partitioner/sharding/Problems.h"

using namespace cleave;
using namespace cleave::partitioner;
using namespace cleave::partitioner::test;

TEST_CASE("a fused qkv is cut by heads, also seen from its weight") {
  Problem problem(meshOf(1, 2));
  const TensorId x = problem.pinned({2, 5, 8}, "_, _, _"), weight = problem.open({24, 8}, "qkv");
  const TensorId packed = problem.reshape(problem.linear(x, weight), {2, 5, 3, 4, 2});
  problem.scores(problem.part(packed, 0), problem.part(packed, 1));
  CHECK(defaultCut(problem, problem.ops[0].results[0], 2, 2) == DimCut{3, 4, 2});
  CHECK(defaultCut(problem, problem.ops[0].results[0], 2, 5) == DimCut{1, 24, 1}); // fewer heads than parts
  const auto heads = headsOf(problem, weight);
  REQUIRE(heads);
  CHECK(heads->dim == 0);
  CHECK(heads->sizes == Shape{3, 4, 2});
}

TEST_CASE("the heads of a weight are those of its first use, not those that its gradients reach") {
  Problem problem(meshOf(1, 2));
  const TensorId x = problem.pinned({2, 5, 8}, "_, _, _"), weight = problem.open({24, 8}, "qkv"),
                 dy = problem.pinned({2, 5, 24}, "_, _, _");
  const TensorId packed = problem.reshape(problem.linear(x, weight), {2, 5, 3, 4, 2});
  problem.scores(problem.part(packed, 0), problem.part(packed, 1));
  // The gradient of x, which came from another attention: its columns become the heads of that attention.
  const TensorId gradient = problem.op(OpKind::Other, matmulRule(3, 2, false, false), {dy, weight}, {2, 5, 8}, 0, true);
  const TensorId heads = problem.op(OpKind::Transpose, transposeRule({0, 2, 1, 3}),
                                    {problem.reshape(gradient, {2, 5, 2, 4})}, {2, 2, 5, 4}, 0, true);
  problem.scores(heads, heads);
  CHECK(headsOf(problem, weight)->dim == 0);
}

TEST_CASE("a product of which slices take runs is cut in every run") {
  Problem problem(meshOf(1, 2));
  const TensorId gates = problem.linear(problem.pinned({4, 8}, "_, _"), problem.open({12, 8}, "w"));
  for (int64_t at : {0, 6})
    problem.op(OpKind::Slice, windowRule({4, 12}, {4, 6}, {0, at}), {problem.relu(gates)}, {4, 6});
  CHECK(defaultCut(problem, gates, 1, 2) == DimCut{2, 6, 1});
  CHECK(defaultCut(problem, gates, 1, 8) == DimCut{1, 12, 1}); // the runs are shorter than 8
  CHECK(DimCut{2, 6, 1}.over({"dp", "tp"}).factors == std::vector<Factor>{{2, {}}, {6, {"dp", "tp"}}, {1, {}}});
  CHECK_FALSE(headsOf(problem, 1));
}
