// The list that choicesOf returns. tests/unit/partitioner/annotate/Choices.cpp checks that every choice computes the
// op.
#include "tests/unit/partitioner/sharding/Problems.h"

#include <algorithm>
#include <set>

using namespace cleave;
using namespace cleave::partitioner;
using namespace cleave::partitioner::test;

namespace {

std::set<std::string> choices(const Problem &problem, OpId op) {
  std::set<std::string> texts;
  const std::vector<OpSharding> all = choicesOf(problem, op);
  for (const OpSharding &choice : all)
    texts.insert(text(choice));
  CHECK(texts.size() == all.size()); // no duplicates
  return texts;
}

std::set<std::string> choices(const Problem &problem) { return choices(problem, (OpId)problem.ops.size() - 1); }

} // namespace

TEST_CASE("a product is split by rows, by columns, or leaves partial sums") {
  Problem problem(meshOf(1, 2));
  problem.linear(problem.pinned({4, 6}, "_, _"), problem.open({8, 6}, "w"));
  CHECK(choices(problem) == std::set<std::string>{"_, _; _, _ -> _, _", "tp, _; _, _ -> tp, _",
                                                  "_, tp; _, tp -> _, _ | sum tp", "_, _; tp, _ -> _, tp"});
}

TEST_CASE("two axes split two loops, one loop jointly, or one alone") {
  Problem problem(meshOf(2, 2));
  problem.linear(problem.pinned({4, 6}, "_, _"), problem.open({8, 6}, "w"));
  const auto all = choices(problem);
  CHECK(all.size() == 16); // each axis splits one of three loops, or none
  for (const char *text : {"dp, tp; _, tp -> dp, _ | sum tp", "dp+tp, _; _, _ -> dp+tp, _",
                           "_, dp+tp; _, dp+tp -> _, _ | sum dp+tp", "dp, _; tp, _ -> dp, tp"})
    CHECK(all.contains(text));
}

TEST_CASE("loops shorter than an axis are not split, uneven shares are") {
  Problem problem(meshOf(1, 4));
  problem.relu(problem.pinned({3, 6}, "_, _"));
  CHECK(choices(problem) == std::set<std::string>{"_, _ -> _, _", "_, tp -> _, tp"});
}

TEST_CASE("partial sums pass through linear ops, and through products with equal numbers") {
  Problem problem(meshOf(1, 2));
  const TensorId a = problem.pinned({4}, "_"), b = problem.pinned({4}, "_");
  problem.add(a, b);
  CHECK(choices(problem) == std::set<std::string>{"_; _ -> _", "tp; tp -> tp", "_ | sum tp; _ | sum tp -> _ | sum tp"});
  const OpRule product = elementwiseRule(1, 2, 1, SumPassing::Product),
               quotient = elementwiseRule(1, 2, 1, SumPassing::Quotient);
  problem.op(OpKind::Elementwise, product, {a, b}, {4});
  CHECK(choices(problem) == std::set<std::string>{"_; _ -> _", "tp; tp -> tp"});
  const TensorId two = problem.constant({4});
  problem.op(OpKind::Elementwise, product, {two, a}, {4});
  CHECK(choices(problem) == std::set<std::string>{"_; _ -> _", "tp; tp -> tp", "_; _ | sum tp -> _ | sum tp"});
  problem.op(OpKind::Elementwise, quotient, {a, two}, {4});
  CHECK(choices(problem).contains("_ | sum tp; _ -> _ | sum tp"));
  problem.op(OpKind::Elementwise, quotient, {two, a}, {4}); // 2 / (a + b) is not 2 / a + 2 / b
  CHECK(choices(problem) == std::set<std::string>{"_; _ -> _", "tp; tp -> tp"});
  problem.relu(a);
  CHECK(choices(problem) == std::set<std::string>{"_ -> _", "tp -> tp"});
}

TEST_CASE("maxima of shares are partial maxima") {
  Problem problem(meshOf(1, 2));
  problem.op(OpKind::Other, reduceRule(2, {1}, LoopKind::Max), {problem.pinned({4, 6}, "_, _")}, {4});
  CHECK(choices(problem) == std::set<std::string>{"_, _ -> _", "tp, _ -> tp", "_, tp -> _ | max tp"});
}

TEST_CASE("a constant is made under any sharding") {
  Problem problem(meshOf(1, 2));
  problem.constant({4, 6});
  CHECK(choices(problem) == std::set<std::string>{" -> _, _", " -> tp, _", " -> _, tp"});
}

TEST_CASE("a reshape has what its operand's and its result's dimensions allow") {
  Problem problem(meshOf(1, 2));
  problem.reshape(problem.pinned({5, 24}, "_, _"), {5, 3, 4, 2});
  CHECK(choices(problem) == std::set<std::string>{"_, _ -> _, _, _, _", "tp, _ -> tp, _, _, _",
                                                  "_, (3 x 8:tp) -> _, _, tp, _", "_, (12 x 2:tp) -> _, _, _, tp",
                                                  "_, (3:tp x 8) -> _, tp, _, _",
                                                  "_, _ | sum tp -> _, _, _, _ | sum tp"});
}

TEST_CASE("a product that heads are made of can be cut by heads") {
  Problem problem(meshOf(1, 2));
  const TensorId x = problem.pinned({2, 5, 8}, "_, _, _"), w = problem.open({24, 8}, "qkv");
  const TensorId packed = problem.reshape(problem.linear(x, w), {2, 5, 3, 4, 2});
  problem.scores(problem.part(packed, 0), problem.part(packed, 1));
  const auto all = choices(problem, 0);
  CHECK(all.contains("_, _, _; (3 x 8:tp), _ -> _, _, (3 x 8:tp)"));
  CHECK(all.contains("_, _, _; tp, _ -> _, _, tp"));
}

TEST_CASE("a mark leaves the choices that fulfil it") {
  Problem problem(meshOf(2, 2));
  problem.marks.push_back({sharding("tp", {4}).dims[0], std::nullopt});
  const TensorId x = problem.pinned({4, 6}, "_, _");
  problem.addOp({.kind = OpKind::Mark,
                 .rule = problem.rules.add(elementwiseRule(2, 1, 1, SumPassing::Linear)),
                 .operands = {x},
                 .mark = 0},
                {{.shape = {4, 6}}});
  CHECK(choices(problem) ==
        std::set<std::string>{"tp, _ -> tp, _", "tp, dp -> tp, dp", "tp, _ | sum dp -> tp, _ | sum dp"});
}

TEST_CASE("what goes by one operand is split by its loops") {
  Problem problem(meshOf(1, 2));
  OpRule rule = elementwiseRule(1, 2);
  rule.operands[1][0].loop = static_cast<int>(rule.loops.size());
  rule.loops.push_back(LoopKind::Parallel);
  rule.leader = 1;
  problem.op(OpKind::Other, rule, {problem.pinned({4}, "_"), problem.pinned({4}, "_")}, {4});
  CHECK(choices(problem) == std::set<std::string>{"_; _ -> _", "_; tp -> _"});
}
