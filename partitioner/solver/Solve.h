// Solves sharding-choice problems: the best assignment and a proof, or the best one found and a bound.
#pragma once
#include "partitioner/solver/Branch.h"

#include <optional>

namespace cleave::partitioner {

struct SolveOptions {
  /// Asked often, by all threads: whether to end with the best that was found.
  std::function<bool()> stop;
  /// Entries of tables that may be looked at, about 10^9 in a second.
  uint64_t work = UINT64_MAX;
  /// Ends early when the best costs at most this part more than the bound.
  double tolerance = 0;
  /// Ends early if it is soon proved that no assignment costs less: then none is returned.
  std::optional<WideCost> below = {};
  /// 2: a bound and a search run side by side. The result does not depend on it unless `stop` ends the work.
  unsigned threads = 1;
};

/// Solves a problem that checkProblem accepts. The result is the same for the same problem and options, unless `stop`
/// ended the work. If the best assignment costs more than 2^61 above the sum of the least costs of all
/// tables, costs are rounded: it may be missed by less than one part in 2^30, and is not proved to be the best.
AssignmentSolution solveAssignment(const AssignmentProblem &problem, const SolveOptions &options = {});

} // namespace cleave::partitioner
