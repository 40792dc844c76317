// The solver against all assignments.
#include "partitioner/solver/Solve.h"
#include "Problems.h"
#include "partitioner/solver/Branch.h"
#include "partitioner/solver/Dual.h"
#include "partitioner/solver/Neighbourhood.h"
#include "partitioner/solver/Reduce.h"

#include <catch2/catch.hpp>

using namespace cleave::partitioner;
using namespace cleave::partitioner::solver_test;

static WideCost leastCosts(const AssignmentProblem &problem) {
  WideCost sum = 0;
  for (const AssignmentNode &node : problem.nodes)
    sum += *std::min_element(node.costs.begin(), node.costs.end());
  for (const AssignmentEdge &edge : problem.edges)
    sum += *std::min_element(edge.costs.begin(), edge.costs.end());
  return sum;
}

static void requireBest(uint64_t seed, const ProblemShape &shape) {
  const AssignmentProblem problem = randomProblem(seed, shape);
  checkProblem(problem, "random");
  const AssignmentSolution best = bruteForce(problem), found = solveAssignment(problem);
  INFO("seed " << seed << ", best " << text(best.cost) << ", found " << text(found.cost) << ", bound "
               << text(found.lowerBound));
  REQUIRE(found.infeasible == best.infeasible);
  if (best.infeasible)
    return;
  REQUIRE(found.assignment.size() == problem.nodes.size());
  REQUIRE(fits(problem, found.assignment));
  REQUIRE(costOf(problem, found.assignment) == found.cost);
  REQUIRE(found.lowerBound <= best.cost);
  REQUIRE(double(found.cost) <= double(best.cost) * (1 + 1e-9));
  if (best.cost - leastCosts(problem) > WideCost(1) << 61)
    return; // costs were rounded
  REQUIRE(found.cost == best.cost);
  REQUIRE(found.lowerBound == best.cost);
  REQUIRE(found.optimal());
}

TEST_CASE("small problems have the best of all assignments", "[solver]") {
  for (uint64_t seed = 0; seed < 4000; ++seed)
    requireBest(seed, {});
  for (uint64_t seed = 0; seed < 1000; ++seed)
    requireBest(seed, {.nodes = 9, .choices = 3, .edges = 2.5, .marks = 0.02, .ties = 0.1});
  for (uint64_t seed = 0; seed < 1000; ++seed)
    requireBest(seed, {.nodes = 5, .edges = 1.2, .hyperedges = true});
}

TEST_CASE("costs of any size give the best assignment", "[solver]") {
  for (uint64_t seed = 0; seed < 500; ++seed)
    requireBest(seed, {.costs = 1'000'000'000'000, .marks = 0.3});
  for (uint64_t seed = 0; seed < 500; ++seed)
    requireBest(seed, {.costs = 1, .marks = 0.6, .ties = 0.5}); // often no assignment without marks
}

TEST_CASE("costs beyond the exact range have a valid bound", "[solver]") {
  for (uint64_t seed = 0; seed < 500; ++seed)
    requireBest(seed, {.costs = INT64_MAX - 1, .marks = 0});
}

TEST_CASE("a core's bound is below every assignment, with any prices and messages", "[solver]") {
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    const AssignmentProblem problem = randomProblem(seed, {.choices = 5, .marks = 0.05});
    const AssignmentSolution best = bruteForce(problem);
    if (best.infeasible || best.cost > 1'000'000)
      continue;
    Core core = coreOf(problem, 1'000'000, 0);
    setTarget(core, best.cost + 1);
    reduce(core);
    for (int round = 0; round < 3 && !core.infeasible; ++round) {
      const Model model = modelOf(core);
      Dual dual(model);
      for (int step = 0; step < 10; ++step) {
        dual.sweep();
        dual.movePrices(double(1 + seed % 50) * 1e3);
      }
      dual.applyTo(core);
      reduce(core);
      INFO("seed " << seed << ", round " << round);
      REQUIRE(boundOf(core) <= best.cost);
      REQUIRE(!core.infeasible); // the best assignment is still there
    }
  }
}

static void requireReduced(const Reductions &reductions) {
  for (uint64_t seed = 0; seed < 600; ++seed) {
    const AssignmentProblem problem = randomProblem(seed, {.hyperedges = true});
    const AssignmentSolution best = bruteForce(problem);
    Core core = coreOf(problem, widest, 0);
    reduce(core, reductions);
    INFO("seed " << seed);
    if (best.infeasible || best.cost - leastCosts(problem) > widest)
      continue;
    REQUIRE(!core.infeasible);
    // The best of the reduced core by branching without further reductions than needed, restored.
    Core plain = core;
    BranchSearch search(plain);
    WorkLimit limit;
    REQUIRE(search.run(limit));
    REQUIRE(!search.choices().empty());
    REQUIRE(search.cost() == best.cost);
    const std::vector<uint32_t> x = restored(core, search.choices());
    REQUIRE(fits(problem, x));
    REQUIRE(costOf(problem, x) == best.cost);
  }
}

TEST_CASE("each reduction alone keeps a best assignment", "[solver]") {
  const Reductions none{false, false, false, false};
  requireReduced(none);
  for (int k = 0; k < 4; ++k) {
    Reductions one = none;
    (k == 0 ? one.tied : k == 1 ? one.folded : k == 2 ? one.dominated : one.rows) = true;
    requireReduced(one);
  }
  requireReduced({});
}

TEST_CASE("the reductions do what their names say", "[solver]") {
  const auto left = [](const AssignmentProblem &problem, const Reductions &reductions) {
    Core core = coreOf(problem, 1000, 0);
    reduce(core, reductions);
    std::vector<size_t> choices;
    for (const CoreNode &node : core.nodes)
      if (!node.costs.empty())
        choices.push_back(node.costs.size());
    return std::pair(choices, core.room.size());
  };
  const Reductions none{false, false, false, false};
  using Left = std::pair<std::vector<size_t>, size_t>;
  // A sum u(i) + v(j) ties nothing: the edge is removed. Then the nodes' memory alone keeps them.
  AssignmentProblem pair{"", {{{0, 5}, {3, 1}, 0, 2}, {{0, 4}, {3, 1}, 1, 3}}, {{{0, 1}, {1, 2, 3, 4}}}, 4};
  CHECK(left(pair, none) == Left{{2, 2}, 1});
  // With room for all, the row cannot be exceeded, and the nodes have no memory.
  pair.usageLimit = 6;
  CHECK(left(pair, {.tied = false, .folded = true, .dominated = false, .rows = true}) == Left{{}, 0});
  CHECK(left(pair, none) == Left{{2, 2}, 1});
  // Equal choices only: the second node follows the first.
  AssignmentProblem tied{"", {{{0, 5}, {3, 1}, 0, 2}, {{4, 0}, {3, 1}, 1, 3}}, {{{0, 1}, {0, 2000, 2000, 0}}}, 4};
  CHECK(left(tied, {.tied = true, .folded = false, .dominated = false, .rows = false}) ==
        Left{{}, 1}); // 3 + 3 does not fit
  // The second choice costs more and uses more.
  AssignmentProblem worse{
      "", {{{0, 5, 9}, {3, 3, 1}, 0, 2}, {{0, 4}, {3, 1}, 1, 3}}, {{{0, 1}, {0, 9, 0, 9, 9, 0}}}, 4};
  CHECK(left(worse, {.tied = false, .folded = false, .dominated = true, .rows = false}) == Left{{2, 2}, 1});
}

TEST_CASE("neighbourhoods keep the memory and never cost more", "[solver]") {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const AssignmentProblem problem = randomProblem(seed, {.nodes = 8, .marks = 0});
    const AssignmentSolution best = bruteForce(problem);
    if (best.infeasible)
      continue;
    const Core core = coreOf(problem, 1000, 0);
    const Model model = modelOf(core);
    Choices start(model.nodes(), 0);
    if (!fits(model, start) || costOf(model, start) >= forbidden)
      continue;
    NeighbourhoodSearch search(model, start, seed);
    WorkLimit limit{.most = 300'000, .done = 0, .stop = {}};
    search.run(limit);
    REQUIRE(fits(model, search.best()));
    REQUIRE(costOf(model, search.best()) == search.cost());
    REQUIRE(search.cost() <= costOf(model, start));
    REQUIRE(model.base + search.cost() >= best.cost);
  }
}

/// A chain of layers whose nodes must mostly agree, with memory that does not suffice for the best choices.
static AssignmentProblem layers(uint64_t seed, uint32_t count, uint32_t choices) {
  std::mt19937_64 random(seed);
  AssignmentProblem out;
  for (uint32_t v = 0; v < count; ++v) {
    AssignmentNode node{{}, {}, v, v + 2 + int64_t(random() % 6)};
    for (uint32_t i = 0; i < choices; ++i) {
      node.costs.push_back(pick(random, 0, 1000));
      node.usages.push_back(1000 - node.costs.back() + pick(random, 0, 100));
    }
    out.nodes.push_back(std::move(node));
    for (const uint32_t back : {1u, 2u, 5u, 12u})
      if (v >= back && random() % 4 != 0) {
        AssignmentEdge edge{{v - back, v}, {}};
        for (uint32_t i = 0; i < choices; ++i)
          for (uint32_t j = 0; j < choices; ++j)
            edge.costs.push_back(i == j ? 0 : pick(random, 100, 500));
        out.edges.push_back(std::move(edge));
      }
  }
  out.usageLimit = 2600;
  return out;
}

TEST_CASE("the same problem and work give the same result, with one thread and two", "[solver]") {
  const AssignmentProblem problem = layers(7, 120, 6);
  const AssignmentSolution one = solveAssignment(problem, {.stop = {}, .work = 400'000'000, .threads = 1});
  REQUIRE(!one.assignment.empty());
  REQUIRE(fits(problem, one.assignment));
  REQUIRE(one.lowerBound <= one.cost);
  for (unsigned threads : {1u, 2u, 2u}) {
    const AssignmentSolution again = solveAssignment(problem, {.stop = {}, .work = 400'000'000, .threads = threads});
    CHECK(again.assignment == one.assignment);
    CHECK(again.cost == one.cost);
    CHECK(again.lowerBound == one.lowerBound);
  }
}

TEST_CASE("a search that is stopped has its best and a bound", "[solver]") {
  const AssignmentProblem problem = layers(8, 60, 5);
  const AssignmentSolution all = solveAssignment(problem, {.stop = {}, .work = 400'000'000, .threads = 1});
  for (int asks : {0, 1, 3, 10, 100}) {
    int left = asks;
    const AssignmentSolution some =
        solveAssignment(problem, {.stop = [&] { return --left < 0; }, .work = UINT64_MAX, .threads = 1});
    REQUIRE(!some.infeasible);
    REQUIRE(some.lowerBound <= all.cost);
    if (some.assignment.empty())
      continue;
    REQUIRE(fits(problem, some.assignment));
    REQUIRE(costOf(problem, some.assignment) == some.cost);
    REQUIRE(some.cost >= all.lowerBound);
  }
}

TEST_CASE("a search ends early where nothing is below a cost, or the best is near the bound", "[solver]") {
  int none = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    const AssignmentProblem problem = randomProblem(seed, {});
    const AssignmentSolution best = bruteForce(problem);
    INFO("seed " << seed << ", best " << text(best.cost));
    if (best.infeasible || best.cost - leastCosts(problem) > WideCost(1) << 61)
      continue;
    const WideCost above = best.cost / 8 + 1;
    for (const WideCost below : {best.cost - above, best.cost, best.cost + 1, best.cost + above}) {
      const AssignmentSolution found = solveAssignment(problem, {.below = below});
      REQUIRE(found.lowerBound <= best.cost);
      if (found.assignment.empty()) {
        REQUIRE(below <= best.cost);
        REQUIRE(found.lowerBound >= below);
        ++none;
      } else
        REQUIRE(found.cost == best.cost);
    }
    const AssignmentSolution near = solveAssignment(problem, {.tolerance = 0.1});
    REQUIRE(near.lowerBound <= best.cost);
    REQUIRE(double(near.cost - near.lowerBound) <= 0.1 * double(near.cost));
    REQUIRE(costOf(problem, near.assignment) == near.cost);
  }
  CHECK(none > 1000);
}
