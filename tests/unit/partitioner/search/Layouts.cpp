// The problem of layouts and its solutions, against all assignments of small problems.
#include "partitioner/search/SolveLayouts.h"
#include "partitioner/sharding/Assign.h"
#include "partitioner/sharding/Pinned.h"
#include "tests/unit/partitioner/sharding/Problems.h"

#include <random>

using namespace cleave;
using namespace cleave::partitioner;
using namespace cleave::partitioner::test;

namespace {

/// Two nodes of two devices.
Cluster twoNodes() {
  return Cluster::parse(R"(name = "two nodes"
[devices.a100]
backend = "cuda"
memory_gib = 40.0
memory_gb_per_s = 1555.0
peak_tflops = { fp32 = 19.5, tf32 = 156.0, fp16 = 312.0, bf16 = 312.0 }
[[nodes]]
count = 2
devices = { a100 = 2 }
inside = { gb_per_s = 300.0, latency_us = 3.0 }
[network]
gb_per_s_per_node = 25.0
latency_us = 10.0
)",
                        "test");
}

/// Reductions of a gradient, as the backward pass of a linear layer computes it.
struct Training : Problem {
  using Problem::Problem;
  std::vector<TensorId> values;
  std::vector<Result> described;

  /// A product with its flops.
  TensorId product(OpRule rule, TensorId a, TensorId b, const Shape &shape, int64_t depth, bool backward) {
    const TensorId made = op(OpKind::Other, std::move(rule), {a, b}, shape, 0, backward);
    double flops = 2 * static_cast<double>(depth);
    for (const int64_t size : shape)
      flops *= static_cast<double>(size);
    ops.back().flops = flops;
    return made;
  }
  TensorId layer(TensorId x, TensorId weight) {
    const Shape in = tensors[x].shape, w = tensors[weight].shape;
    return product(matmulRule(2, 2, false, true), x, weight, {in[0], w[0]}, in[1], false);
  }
  /// The gradient of the weight becomes a result.
  void gradient(TensorId x, TensorId weight, TensorId grad) {
    const Shape w = tensors[weight].shape;
    values.push_back(product(matmulRule(2, 2, true, false), grad, x, w, tensors[x].shape[0], true));
    described.push_back({.follows = arguments[weight].name, .mayBePartial = true, .gradient = true});
  }
  TensorId gradientOfInput(TensorId weight, TensorId grad) {
    const Shape w = tensors[weight].shape;
    return product(matmulRule(2, 2, false, false), grad, weight, {tensors[grad].shape[0], w[1]}, w[0], true);
  }
  void finish() { addReturn(values, described); }
  /// Labels for the rules of strategies.
  void label() {
    for (size_t id = 0; id < ops.size(); ++id)
      ops[id].path = "net", ops[id].label = "op" + std::to_string(id);
  }
};

/// One or two layers with elementwise ops between them, and their gradients.
Training randomTraining(std::mt19937 &random, const Mesh &mesh) {
  const auto draw = [&](std::vector<int64_t> from) {
    return from[std::uniform_int_distribution<size_t>(0, from.size() - 1)(random)];
  };
  Training problem(mesh);
  const int64_t rows = draw({8, 64, 4096}), in = draw({16, 256, 8192}), out = draw({16, 512, 16384});
  const TensorId x = problem.pinned({rows, in}, mesh.size("dp") > 1 ? "dp, _" : "_, _"),
                 w = problem.open({out, in}, "net.w"), target = problem.pinned({rows, out}, "_, _");
  TensorId y = problem.layer(x, w);
  if (draw({0, 1}))
    y = problem.relu(y);
  const TensorId error = problem.add(y, target);
  problem.gradient(x, w, error);
  if (draw({0, 1})) { // the error is read twice
    problem.values.push_back(problem.relu(error));
    problem.described.push_back({});
  }
  problem.finish();
  problem.label();
  return problem;
}

LayoutInput inputOf(const ShardingProblem &problem, LayoutCosts &costs) {
  LayoutInput input{.problem = problem, .costs = costs, .microbatches = 2};
  input.ops.resize(problem.ops.size());
  input.names.resize(problem.names.size());
  return input;
}

ShardingSolution solutionOf(ShardingProblem &problem, const DecidedLayouts &layouts) {
  const auto names = problem.names;
  const auto arguments = problem.arguments;
  for (size_t n = 0; n < names.size(); ++n)
    if (layouts.names[n])
      problem.names[n].sharding = layouts.names[n];
  for (Argument &argument : problem.arguments)
    if (!argument.pinned)
      argument.pinned = problem.names[argument.name].sharding;
  ShardingSolution solution = assign(problem, layouts.ops);
  problem.names = names, problem.arguments = arguments;
  return solution;
}

} // namespace

TEST_CASE("no assignment of layouts is cheaper than the solver's, and the solution costs what the solver says") {
  std::mt19937 random(7);
  const Cluster cluster = twoNodes();
  for (int i = 0; i < 30; ++i) {
    Training problem = randomTraining(random, i % 2 ? meshOf(1, 2) : meshOf(4, 1));
    LayoutCosts costs({{cluster}}, problem.mesh, Rate::Fp16, Rate::Fp32);
    const LayoutInput input = inputOf(problem, costs);
    const LayoutProblem layouts(input);
    const AssignmentProblem &made = layouts.assignmentProblem();
    const AssignmentSolution solved = solveAssignment(made);
    REQUIRE(solved.optimal());
    CHECK(layouts.costOf(solutionOf(problem, layouts.decided(solved.assignment))).all() == solved.cost);
    int64_t total = 1;
    for (const AssignmentNode &node : made.nodes)
      total *= static_cast<int64_t>(node.costs.size());
    INFO(i << ": " << total << " assignments");
    std::vector<uint32_t> assignment(made.nodes.size());
    const int64_t step = std::max<int64_t>(1, total / 1000); // of all assignments, or a part of them
    for (int64_t at = 0; at < total; at += step) {
      int64_t rest = at;
      for (size_t n = 0; n < made.nodes.size(); ++n) {
        const auto choices = static_cast<int64_t>(made.nodes[n].costs.size());
        assignment[n] = static_cast<uint32_t>(rest % choices);
        rest /= choices;
      }
      const WideCost cost = costOf(made, assignment);
      CHECK(cost >= solved.cost);
      if (cost >= WideCost(1) << 53) // impossible
        continue;
      // Whatever is assigned can be compiled, and costs no more than the problem says: what several ops want is made
      // once.
      const ShardingSolution solution = solutionOf(problem, layouts.decided(assignment));
      CHECK(layouts.costOf(solution).all() <= cost);
      CHECK(layouts.costOf(solution).all() >= solved.cost);
    }
  }
}

TEST_CASE("the walk over the ops is never cheaper than the solver") {
  std::mt19937 random(11);
  const Cluster cluster = twoNodes();
  int cheaper = 0;
  for (int i = 0; i < 40; ++i) {
    Training problem = randomTraining(random, meshOf(2, 2));
    LayoutCosts costs({{cluster}}, problem.mesh, Rate::Fp16, Rate::Fp32);
    const LayoutInput input = inputOf(problem, costs);
    const LayoutProblem layouts(input);
    const AssignmentSolution solved = solveAssignment(layouts.assignmentProblem());
    REQUIRE(solved.optimal());
    const WideCost walk = layouts.costOf(assign(problem)).all();
    CHECK(solved.cost <= walk);
    cheaper += solved.cost < walk;
  }
  CHECK(cheaper > 10);
}

TEST_CASE("rules of a strategy give the solved shardings again") {
  std::mt19937 random(5);
  const Cluster cluster = twoNodes();
  for (int i = 0; i < 30; ++i) {
    std::mt19937 again = random;
    Training problem = randomTraining(random, meshOf(2, 2)), same = randomTraining(again, meshOf(2, 2));
    const std::vector<ModelLayer> layers{{"net", "net", 0}};
    const SolvedLayouts solved = solveLayouts(same, {.name = "random",
                                                     .places = {{cluster}},
                                                     .microbatches = 2,
                                                     .hides = i % 2 == 0,
                                                     .all = true,
                                                     .layers = layers,
                                                     .layerOf = [](const std::string &) { return "net"; }});
    REQUIRE(solved.solution.optimal());
    Decisions strategy;
    strategy.mesh = problem.mesh;
    strategy.shard = solved.shard;
    strategy.ops = solved.ops;
    strategy = Decisions::parse(strategy.toToml(), "test");
    LayoutCosts costs({{cluster}}, problem.mesh, Rate::Fp16, Rate::Fp32);
    const LayoutInput input = inputOf(problem, costs);
    const LayoutProblem layouts(input);
    for (NamedTensor &named : problem.names)
      named.sharding = pinnedSharding(named.name, problem.tensors[1].shape, strategy, [] { return std::nullopt; });
    for (Argument &argument : problem.arguments)
      if (!argument.pinned)
        argument.pinned = problem.names[argument.name].sharding;
    const LayoutCost cost = layouts.costOf(assign(problem, decidedOps(problem, strategy, true)));
    const int64_t hidden = i % 2 == 0 ? cost.backward / 2 : 0;
    const int64_t all = cost.steps + std::max<int64_t>(0, cost.sums - hidden);
    CHECK(std::abs(all - solved.cost) <= 100); // picoseconds: parts of the sums are rounded
    CHECK(solved.cost <= solved.otherCost);
  }
}

TEST_CASE("a wide layer splits its weight, a small one the rows") {
  Training problem(meshOf(4, 1));
  const TensorId x = problem.pinned({8192, 256}, "dp, _"), small = problem.open({256, 256}, "net.small"),
                 wide = problem.open({65536, 256}, "net.wide");
  const TensorId h = problem.relu(problem.layer(x, small)), y = problem.relu(problem.layer(h, wide));
  problem.gradient(h, wide, y);
  problem.gradient(x, small, problem.gradientOfInput(wide, y));
  problem.finish();
  problem.label();
  const std::vector<ModelLayer> layers{{"net", "net", 0}};
  const Cluster cluster = twoNodes();
  const SolvedLayouts solved = solveLayouts(
      problem,
      {.name = "wide", .places = {{cluster}}, .layers = layers, .layerOf = [](const std::string &) { return "net"; }});
  REQUIRE(solved.shard.size() == 2);
  CHECK(solved.shard[0].dims.empty());
  CHECK(solved.shard[1].dims == std::map<std::string, std::string>{{"0", "dp"}});
  CHECK(static_cast<double>(solved.cost) < 0.8 * static_cast<double>(solved.otherCost));
}

TEST_CASE("decisions are written as text and read again") {
  Training problem(meshOf(2, 2));
  const TensorId x = problem.pinned({8, 16}, "dp, _"), w = problem.open({32, 16}, "net.w");
  problem.values = {problem.layer(x, w)};
  problem.described = {{}};
  problem.finish();
  problem.label();
  Decisions strategy;
  strategy.mesh = problem.mesh;
  const auto decided = [&](const std::string &label, const std::string &text) {
    strategy.ops = {{"net", {{label, text}}, "file"}};
    return decidedOps(problem, strategy, true);
  };
  for (const char *text :
       {"dp, _ ; tp, _ -> dp, tp", "dp, tp ; _, tp -> dp, _ | sum tp", "dp, tp ; _, tp -> dp, _ | sum tp => dp, tp",
        "dp, tp ; _, tp -> dp, _ | sum tp backward => dp, tp", "dp, _ ; _, _ -> dp, _ => dp, tp backward => _, _",
        "_, dp+tp ; _, dp+tp -> _, _ | sum dp+tp"})
    CHECK(decisionText(*decided("op0", text)[0]) == text);
  for (const char *text :
       {"", "dp, _ ; tp, _", "dp, _ ; tp, _ -> dp, _", "dp, _ -> dp, tp", "dp, _ ; tp, _ ; _ -> dp, tp",
        "dp, _ ; tp, _ -> dp, tp => dp, tp | sum tp", "dp, _ ; xp, _ -> dp, xp"})
    CHECK_THROWS(decided("op0", text));
  CHECK_THROWS(decided("op9", "dp, _ ; tp, _ -> dp, tp"));
}
