// Branch and bound: the best assignment of a core, or the best one and a bound after a given amount of work.
#pragma once
#include "partitioner/solver/Model.h"

#include <functional>

namespace cleave::partitioner {

/// What a search may do. Work is counted, so that the same limit gives the same result on every machine.
struct WorkLimit {
  uint64_t most = UINT64_MAX; // entries of tables that may be looked at
  uint64_t done = 0;
  std::function<bool()> stop; // asked from time to time; may be empty
  bool spent(uint64_t work) {
    done += work;
    return done > most || (stop && stop());
  }
};

/// The work of one sweep of the bound.
uint64_t sweepWork(const Model &model);

/// Depth-first branch and bound over cores. A node of the search tree is a core with some choices dropped. Its bound is
/// improved by messages and prices, which are put into its costs; what then exceeds the target is dropped, and the core
/// is reduced.
class BranchSearch {
public:
  /// `root` is `original` after any reductions and prices; its `undo` leads to the nodes of `original`, which has no
  /// prices. Both have the same target.
  BranchSearch(const Core &original, Core root);
  /// The same without any reductions.
  explicit BranchSearch(const Core &original);
  /// Continues the search. Returns whether it is complete: nothing better than the best choices is left.
  bool run(WorkLimit &limit);
  /// Looks only for what costs at most this (base and costs of the original core).
  void lower(WideCost most) { target = std::min(target, most); }

  /// The best choices of the original core's nodes that were found; empty if nothing within the target was.
  const std::vector<uint32_t> &choices() const { return found; }
  WideCost cost() const { return foundCost; }
  /// Nothing better than what was found or given as target costs less.
  WideCost bound() const;

private:
  void visit(Core core, WorkLimit &limit);
  bool improve(Core &core, const Model &model, WorkLimit &limit);
  void offer(const Core &core, std::vector<uint32_t> choices);
  void split(Core core, const Model &model);

  Model original;
  WideCost target;
  std::vector<Core> open;
  std::vector<uint32_t> found;
  WideCost foundCost = 0;
  uint64_t visited = 0;
};

/// A core's copy that a BranchSearch may begin with.
Core rootOf(const Core &original);

} // namespace cleave::partitioner
