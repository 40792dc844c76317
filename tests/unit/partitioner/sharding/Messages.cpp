// Reshards as steps, and their bytes.
#include "partitioner/sharding/Messages.h"
#include "partitioner/sharding/Assign.h"
#include "tests/unit/partitioner/sharding/Problems.h"

using namespace cleave;
using namespace cleave::partitioner;
using namespace cleave::partitioner::test;

namespace {

const char *name(Collective kind) {
  return kind == Collective::AllReduce ? "all-reduce" : kind == Collective::AllGather ? "all-gather" : "reduce-scatter";
}

std::string text(const Message &message) {
  std::string text = std::string(name(message.kind)) + " ";
  for (const std::string &axis : message.axes)
    text += (text.back() == ' ' ? "" : "+") + axis;
  return text + " of " + std::to_string(message.members) + ": " + std::to_string(message.bytes);
}

Lines messages(const Mesh &mesh, const Shape &shape, const char *from, const char *to, int64_t bits = 32) {
  Lines texts;
  for (const Message &message : messagesOf(mesh, sharding(from, shape), sharding(to, shape), bits))
    texts.push_back(text(message));
  return texts;
}

} // namespace

TEST_CASE("a reshard costs its collectives, in bytes of the largest buffer") {
  const Mesh mesh = meshOf(2, 4);
  CHECK(messages(mesh, {8, 16}, "_, _", "dp, tp").empty()); // each takes its share
  CHECK(messages(mesh, {8, 16}, "dp, _ | sum tp", "dp, _") == Lines{"all-reduce tp of 4: 256"});
  CHECK(messages(mesh, {8, 16}, "dp, _ | sum tp", "dp, _", 16) == Lines{"all-reduce tp of 4: 128"});
  CHECK(messages(mesh, {8, 16}, "dp, _ | sum tp", "dp, tp") == Lines{"reduce-scatter tp of 4: 256"});
  CHECK(messages(mesh, {8, 16}, "_, _ | sum dp+tp", "_, _ | sum dp") == Lines{"all-reduce tp of 4: 512"});
  CHECK(messages(mesh, {8, 16}, "dp, tp", "_, _") == Lines{"all-gather dp of 2: 128", "all-gather tp of 4: 512"});
  CHECK(messages(mesh, {8, 16}, "tp, _", "_, tp") == Lines{"all-gather tp of 4: 512"});
  CHECK(messages(mesh, {8, 16}, "_, (2 x 8:tp)", "_, tp") == Lines{"all-gather tp of 4: 512"});
  CHECK(messages(mesh, {6}, "tp", "_") == Lines{"all-gather tp of 4: 24"}); // shares of 2, 2, 1, 1
  CHECK(messages(mesh, {6, 2}, "tp, _ | max dp", "tp, _") == Lines{"all-reduce dp of 2: 16"});
  CHECK(messages(meshOf(1, 4), {8}, "_ | sum dp", "_").empty()); // one member
}

TEST_CASE("what a rank sends, in the ring algorithm") {
  CHECK(Message{Collective::AllReduce, {"tp"}, 4, 256}.bytesSent() == 384);
  CHECK(Message{Collective::ReduceScatter, {"tp"}, 4, 256}.bytesSent() == 192);
  CHECK(Message{Collective::AllGather, {"tp"}, 2, 256}.bytesSent() == 128);
}

TEST_CASE("gathers come before slices") {
  const Mesh mesh = meshOf(2, 2);
  const auto steps = reshardSteps(mesh, sharding("_, dp | sum tp", {4, 4}), sharding("dp, _", {4, 4}));
  REQUIRE(steps.size() == 3);
  CHECK(steps[0].kind == ReshardStep::Kind::AllReduce);
  CHECK(steps[0].axes == std::vector<std::string>{"tp"});
  CHECK(steps[1].kind == ReshardStep::Kind::Gather);
  CHECK(steps[1].place.dim == 1);
  CHECK(steps[2].kind == ReshardStep::Kind::Slice);
  CHECK(steps[2].place.dim == 0);
}

TEST_CASE("the messages of a solution: its reshards, and once an iteration what results leave partial") {
  Problem problem(meshOf(2, 2));
  const TensorId x = problem.pinned({8, 4}, "dp, _"), w1 = problem.open({6, 4}, "w1"), w2 = problem.open({6, 6}, "w2"),
                 w3 = problem.open({6, 6}, "w3");
  const TensorId y = problem.linear(problem.linear(x, w1), w2), z = problem.linear(problem.relu(y), w3);
  const TensorId sum = problem.op(OpKind::Other, reduceRule(2, {0, 1}, LoopKind::Sum), {z}, {});
  const TensorId gradient = problem.op(OpKind::Other, matmulRule(2, 2, true, false), {z, x}, {6, 4}, 0, true);
  problem.addReturn({sum, gradient}, {{.mayBePartial = true}, {.follows = 1, .mayBePartial = true, .gradient = true}});
  const ShardingSolution solution = assign(problem);
  Lines lines;
  for (const SolutionMessage &message : messagesOf(problem, solution))
    lines.push_back(std::to_string(message.tensor) + (message.backward ? " backward " : " ") + text(message.message) +
                    (message.oncePerIteration ? " once" : ""));
  CHECK(lines == Lines{std::to_string(y) + " all-reduce tp of 2: 96",
                       std::to_string(sum) + " all-reduce dp+tp of 4: 4 once",
                       std::to_string(gradient) + " backward all-reduce dp of 2: 48 once"});
}
