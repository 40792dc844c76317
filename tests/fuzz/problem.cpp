// Sharding-choice problems: any text is rejected with a user error, or it is a problem whose solution keeps the rules.
// Small problems are solved with little work, and all assignments of very small ones are tried.
#include "partitioner/solver/ReadProblem.h"
#include "partitioner/solver/Solve.h"
#include "runtime/base/Error.h"

#include <cstdio>
#include <cstdlib>

using namespace cleave::partitioner;

namespace {

void require(bool holds, const char *what) {
  if (holds)
    return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

/// The number of assignments, or `most` if there are more.
size_t countOf(const AssignmentProblem &problem, size_t most) {
  size_t count = 1;
  for (const AssignmentNode &node : problem.nodes)
    count = std::min(most, count * node.costs.size());
  return count;
}

void tryAll(const AssignmentProblem &problem, const AssignmentSolution &found) {
  std::vector<uint32_t> choice(problem.nodes.size());
  bool any = false;
  for (;;) {
    if (fits(problem, choice)) {
      any = true;
      require(costOf(problem, choice) >= found.lowerBound, "an assignment costs less than the bound");
    }
    size_t v = 0;
    while (v < choice.size() && ++choice[v] == problem.nodes[v].costs.size())
      choice[v++] = 0;
    if (v == choice.size())
      break;
  }
  require(any || found.assignment.empty(), "an assignment where there is none");
  require(!any || !found.infeasible, "infeasible, but an assignment fits");
}

void solveSmall(const AssignmentProblem &problem) {
  constexpr size_t most = 4096;
  size_t cells = 0;
  for (const AssignmentEdge &edge : problem.edges)
    cells += edge.costs.size();
  if (problem.nodes.size() > 64 || cells > 4096)
    return;
  const AssignmentSolution found = solveAssignment(problem, {.work = 200000});
  if (!found.assignment.empty()) {
    require(fits(problem, found.assignment), "the assignment exceeds the limit");
    require(costOf(problem, found.assignment) == found.cost, "the assignment has another cost");
    require(found.lowerBound <= found.cost, "the bound is above the cost");
  }
  if (countOf(problem, most) < most)
    tryAll(problem, found);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  try {
    solveSmall(parseProblem({reinterpret_cast<const char *>(data), size}, "fuzz.json"));
  } catch (const cleave::Error &error) {
    if (error.status != cleave::Status::User || *error.what() == 0)
      std::abort();
  }
  return 0;
}
