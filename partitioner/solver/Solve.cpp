// The order of all steps: reductions, branch and bound on what is left, and for what is too large for that a bound and
// a search of neighbourhoods side by side.
#include "partitioner/solver/Solve.h"
#include "partitioner/solver/Portfolio.h"
#include "partitioner/solver/Reduce.h"

#include <cmath>

namespace cleave::partitioner {
namespace {

/// The amount above the least cost of its table from which a cost is taken for a mark of what must not be combined:
/// where the logarithms of all amounts have their widest gap, if that is a factor of a thousand or more. Otherwise
/// every amount is usual.
WideCost usualLimit(const AssignmentProblem &problem) {
  std::array<uint64_t, 64> least{}, most{}; // amounts by their number of binary digits
  const auto see = [&](const std::vector<int64_t> &costs) {
    const int64_t from = *std::min_element(costs.begin(), costs.end());
    for (int64_t cost : costs)
      if (const uint64_t above = uint64_t(cost) - uint64_t(from); above > 0) {
        const auto digits = size_t(63 - __builtin_clzll(above));
        least[digits] = least[digits] == 0 ? above : std::min(least[digits], above);
        most[digits] = std::max(most[digits], above);
      }
  };
  for (const AssignmentNode &node : problem.nodes)
    see(node.costs);
  for (const AssignmentEdge &edge : problem.edges)
    see(edge.costs);
  uint64_t before = 0, limit = UINT64_MAX;
  double widest = 1000;
  for (size_t digits = 0; digits < 64; ++digits) {
    if (least[digits] == 0)
      continue;
    if (before > 0 && double(least[digits]) / double(before) >= widest) {
      widest = double(least[digits]) / double(before);
      limit = least[digits] - 1;
    }
    before = most[digits];
  }
  return limit;
}

/// The number of binary digits that amounts up to `limit` must lose so that no assignment of them is forbidden.
int digitsTooMany(const AssignmentProblem &problem, WideCost limit) {
  WideCost sum = 0;
  const auto add = [&](const std::vector<int64_t> &costs) {
    const int64_t least = *std::min_element(costs.begin(), costs.end());
    WideCost most = 0;
    for (int64_t cost : costs)
      if (const WideCost above = WideCost(cost) - least; above <= limit)
        most = std::max(most, above);
    sum += most;
  };
  for (const AssignmentNode &node : problem.nodes)
    add(node.costs);
  for (const AssignmentEdge &edge : problem.edges)
    add(edge.costs);
  int digits = 0;
  while (sum >> digits >= widest)
    ++digits;
  return digits;
}

class AssignmentSolver {
public:
  AssignmentSolver(const AssignmentProblem &problem, const SolveOptions &options)
      : problem(problem), limit{options.work, 0, options.stop}, threads(options.threads),
        below(options.below), tolerance(options.tolerance) {}

  AssignmentSolution run() {
    WideCost above = usualLimit(problem);
    int digits = digitsTooMany(problem, above);
    if (below && costsNoLess(*below, above, digits))
      return std::move(out);
    while (attempt(above, digits) && !isNear()) {
      if (out.assignment.empty() && above >= everything) {
        out.infeasible = true;
        break;
      }
      const WideCost next = out.assignment.empty() ? everything : out.cost - 1 - least;
      // With a target that near it does not matter what is forbidden above it.
      const int nextDigits = next <= widest ? 0 : digitsTooMany(problem, next);
      if (next <= above && nextDigits >= digits)
        break; // no more can be proved
      above = next;
      digits = nextDigits;
    }
    if (!out.assignment.empty())
      out.lowerBound = std::min(out.lowerBound, out.cost);
    return std::move(out);
  }

private:
  bool isNear() const {
    return !out.assignment.empty() &&
           static_cast<double>(out.cost - out.lowerBound) <= tolerance * static_cast<double>(out.cost);
  }

  static constexpr WideCost everything = WideCost(1) << 65; // above all amounts

  /// Whether it is soon known that no assignment costs less, or which one costs the least.
  bool costsNoLess(WideCost cost, WideCost above, int digits) {
    constexpr uint64_t probeWork = 20'000'000;
    Core core = coreOf(problem, above, digits);
    if ((core.target + 1) << digits < cost)
      return false;
    setTarget(core, cost);
    WorkLimit own{std::min(probeWork, limit.most), 0, limit.stop};
    Portfolio portfolio(std::move(core), threads);
    const bool complete = portfolio.bounds(own);
    limit.spent(own.done);
    if (!complete)
      return false;
    out.lowerBound = cost;
    if (!portfolio.choices().empty()) {
      out.assignment = restored(portfolio.core(), portfolio.choices());
      out.lowerBound = out.cost = costOf(problem, out.assignment);
    }
    return true;
  }

  /// Looks for a better assignment without costs that are more than `above` the least of their table. Returns whether
  /// the search is complete.
  bool attempt(WideCost above, int digits) {
    Core core = coreOf(problem, above, digits);
    // What an assignment costs at least that is not looked at.
    const WideCost beyond = (core.target + 1) << digits;
    if (digits == 0)
      least = core.base;
    else if (least == 0)
      least = coreOf(problem, above, 0).base;
    if (!out.assignment.empty())
      setTarget(core, out.cost);
    Portfolio portfolio(std::move(core), threads);
    const bool complete = portfolio.run(limit, tolerance);
    if (!portfolio.choices().empty()) {
      std::vector<uint32_t> found = restored(portfolio.core(), portfolio.choices());
      const WideCost cost = costOf(problem, found);
      if (out.assignment.empty() || cost < out.cost) {
        out.assignment = std::move(found);
        out.cost = cost;
      }
    }
    const WideCost bound = std::min(beyond, portfolio.bound() << digits);
    out.lowerBound = bounded ? std::max(out.lowerBound, bound) : bound;
    bounded = true;
    return complete;
  }

  const AssignmentProblem &problem;
  WorkLimit limit;
  unsigned threads;
  std::optional<WideCost> below;
  double tolerance;
  WideCost least = 0; // the sum of the least costs of all tables
  bool bounded = false;
  AssignmentSolution out;
};

} // namespace

AssignmentSolution solveAssignment(const AssignmentProblem &problem, const SolveOptions &options) {
  return AssignmentSolver(problem, options).run();
}

} // namespace cleave::partitioner
