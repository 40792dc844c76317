// Finds the shardings of a model by the solver, and writes them as rules of a strategy.
#pragma once
#include "partitioner/search/LayoutProblem.h"
#include "partitioner/solver/Solve.h"
#include "runtime/base/Stopped.h"

#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace cleave::partitioner {

/// A layer of the whole model.
struct ModelLayer {
  std::string path;
  std::string kept; ///< the layer that stands for it in the problem
  int kind = 0;     ///< equal for layers of one kind
};

struct LayoutsToSolve {
  std::string name = {};                       ///< of the problem
  std::vector<LayoutDevices> places;           ///< more than one: see LayoutCosts
  Rate half = Rate::Fp16, single = Rate::Fp32; ///< of products of 16 and of 32 bits
  int64_t microbatches = 1;
  double interest = INFINITY; ///< seconds of a microbatch: solutions that take clearly more are of no use
  bool hides = false;         ///< whether devices communicate while they compute
  /// What equal devices take that split the rows alone, with default shardings; nothing: no plan does that. A solution
  /// is of use if it takes less.
  std::optional<LayoutCost> rowsAlone = {};
  bool all = false; ///< whether to find solutions that are of no use, too
  Stops stops = {}; ///< asked often: whether to throw Stopped
  const std::vector<ModelLayer> &layers;
  /// Maps the path of a module to its layer.
  std::function<std::string(const std::string &path)> layerOf;
};

struct SolvedLayouts {
  std::vector<ShardRule> shard;
  std::vector<OpRules> ops; ///< where the walk over the ops would choose otherwise
  AssignmentProblem problem;
  AssignmentSolution solution;
  /// Picoseconds of a microbatch, of this solution, of the better of default shardings and rows alone, and of the most
  /// that is of interest: with the sums at the end of an iteration as far as the backward pass does not hide them.
  int64_t cost = 0, otherCost = 0, mostCost = 0;
  /// Whether the solution is better than these.
  bool isOfUse() const;
};

/// Solves the problem of a model of which at most two layers of each kind are left. Its open parameters get the solved
/// shardings. Without a solution if none is of use.
SolvedLayouts solveLayouts(ShardingProblem &problem, const LayoutsToSolve &request);

/// Whether a solution may be of use; solveLayouts finds none if not. Soon known.
bool mayBeOfUse(ShardingProblem &problem, const LayoutsToSolve &request);

/// What the default shardings cost, with all of the sums.
LayoutCost defaultCost(ShardingProblem &problem, const LayoutsToSolve &request);

/// Writes the problem, in the format of `cleave solve`, and its solution to `folder` (--dump-problems), which is made.
void writeProblem(const SolvedLayouts &layouts, const std::string &folder);

} // namespace cleave::partitioner
