// Random problems, and their best assignments by trying all.
#pragma once
#include "partitioner/solver/Core.h"

#include <random>

namespace cleave::partitioner::solver_test {

inline int64_t pick(std::mt19937_64 &random, int64_t from, int64_t to) {
  return from + int64_t(random() % uint64_t(to - from + 1));
}

/// What random problems look like.
struct ProblemShape {
  int64_t nodes = 6, choices = 4; // at most
  int64_t costs = 20;             // at most
  double edges = 1.5;             // for each node
  double marks = 0.1;             // share of edge costs that are 10^18
  double ties = 0.2;              // share of edges that allow only equal choices
  bool hyperedges = false;
};

inline int64_t tableSize(const AssignmentProblem &problem, const std::vector<uint32_t> &nodes) {
  int64_t size = 1;
  for (uint32_t v : nodes)
    size *= int64_t(problem.nodes[v].costs.size());
  return size;
}

inline AssignmentProblem randomProblem(uint64_t seed, const ProblemShape &shape) {
  std::mt19937_64 random(seed);
  const auto chance = [&](double share) { return double(random() % 1000) < 1000 * share; };
  AssignmentProblem out;
  out.nodes.resize(size_t(pick(random, 1, shape.nodes)));
  for (AssignmentNode &node : out.nodes) {
    for (int64_t left = pick(random, 1, shape.choices); left > 0; --left) {
      node.costs.push_back(pick(random, 0, shape.costs));
      node.usages.push_back(pick(random, 0, 9));
    }
    if (chance(0.2))
      node.usages.assign(node.usages.size(), 3);
    node.begin = pick(random, 0, 9);
    node.end = pick(random, node.begin, 10);
  }
  for (int64_t left = int64_t(double(out.nodes.size()) * shape.edges); left > 0 && out.nodes.size() > 1; --left) {
    AssignmentEdge edge;
    const int64_t arity = !shape.hyperedges || chance(0.7) ? 2 : pick(random, 1, 3);
    while (int64_t(edge.nodes.size()) < std::min(arity, int64_t(out.nodes.size()))) {
      const auto v = uint32_t(random() % out.nodes.size());
      if (std::find(edge.nodes.begin(), edge.nodes.end(), v) == edge.nodes.end())
        edge.nodes.push_back(v);
    }
    const bool tie = edge.nodes.size() == 2 && chance(shape.ties);
    const auto columns = int64_t(out.nodes[edge.nodes.back()].costs.size());
    for (int64_t k = 0; k < tableSize(out, edge.nodes); ++k)
      edge.costs.push_back(tie ? (k / columns == k % columns ? 0 : 1'000'000'000'000'000'000)
                               : (chance(shape.marks) ? 1'000'000'000'000'000'000 : pick(random, 0, shape.costs)));
    out.edges.push_back(std::move(edge));
  }
  if (chance(0.8))
    out.usageLimit = pick(random, 0, 5 * int64_t(out.nodes.size()));
  return out;
}

/// Tries all assignments. The assignment is empty if none stays within the limit.
inline AssignmentSolution bruteForce(const AssignmentProblem &problem) {
  AssignmentSolution best;
  std::vector<uint32_t> x(problem.nodes.size(), 0);
  for (;;) {
    if (fits(problem, x)) {
      const WideCost cost = costOf(problem, x);
      if (best.assignment.empty() || cost < best.cost) {
        best.assignment = x;
        best.cost = cost;
      }
    }
    size_t v = 0;
    while (v < x.size() && ++x[v] == problem.nodes[v].costs.size())
      x[v++] = 0;
    if (v == x.size())
      break;
  }
  best.lowerBound = best.cost;
  best.infeasible = best.assignment.empty();
  return best;
}

} // namespace cleave::partitioner::solver_test
