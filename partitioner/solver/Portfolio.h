// Solves one core: by its bound alone if that is soon complete; otherwise the bound and a search of neighbourhoods work
// side by side, in rounds of fixed work, and tell each other what they found.
#pragma once
#include "partitioner/solver/Branch.h"
#include "partitioner/solver/Dual.h"
#include "partitioner/solver/Neighbourhood.h"

#include <memory>
#include <utility>

namespace cleave::partitioner {

/// Raises the bound of a core by messages and prices as long as that helps, then by branching. Branching first looks
/// for assignments that cost little more than the bound, whether any are known or not: so near a target most choices
/// are dropped at once. Either there is one, or the bound is raised to the target; if the work for a target is spent,
/// it is set farther away.
class BoundSearch {
public:
  explicit BoundSearch(const Core &original);
  /// Continues. Returns whether nothing better is left.
  bool run(WorkLimit &limit);
  /// Looks only for what costs at most this.
  void lower(WideCost most);
  /// Nothing better than what was found or given as target costs less.
  WideCost bound() const { return std::min(best, target + 1); }
  /// The best choices of the last greedy attempts, whatever they cost; empty if there are no new ones.
  std::vector<uint32_t> takeFresh() { return std::exchange(fresh, {}); }
  /// How much the choice of each of the original core's nodes costs more than the bound allows; 0 where it is not
  /// known.
  std::vector<double> scores(const std::vector<uint32_t> &choices) const;
  /// The last choices of the original core's nodes that were found, if they are within the target; empty if none.
  std::vector<uint32_t> take() { return std::exchange(found, {}); }

private:
  void raise(WorkLimit &limit);
  void branch(WorkLimit &limit);
  void offer();

  const Core &original;
  Model originalModel;
  WideCost target, best; // best: the bound
  Core root;
  std::unique_ptr<Model> model;
  std::unique_ptr<Ascent> ascent;
  std::unique_ptr<BranchSearch> tree;
  WideCost near = 0;     // the tree's target
  uint64_t treeWork = 0; // that was done for it
  unsigned level = 0;    // how often the work for a target was spent
  std::vector<uint32_t> found, fresh;
  int64_t freshCost = 0;
  uint64_t steps = 0;
  bool fruitless = false, none = false; // none: nothing within the target is left
};

class Portfolio {
public:
  Portfolio(Core core, unsigned threads);
  /// Returns whether the search is complete: what was found costs at most a part `tolerance` more than the best within
  /// the core's target, or nothing is within it.
  bool run(WorkLimit &limit, double tolerance = 0);
  /// The same by the bound alone, without a tolerance.
  bool bounds(WorkLimit &limit);

  /// The core, reduced; its `undo` leads to the problem's nodes.
  const Core &core() const { return reduced; }
  /// Choices of the core's nodes; empty if none was found.
  const std::vector<uint32_t> &choices() const { return found; }
  /// In the core's units.
  WideCost bound() const { return least; }

private:
  void take(std::vector<uint32_t> choices);
  void direct(BoundSearch &bound);

  Core reduced;
  Model model;
  unsigned threads;
  std::vector<uint32_t> found;
  WideCost cost = 0, least;
  std::optional<NeighbourhoodSearch> neighbourhoods;
  int64_t seen = 0;       // the search's cost when it last gained much
  uint64_t seenTries = 0; // and its tries then
  uint64_t patience =
      100; // tries without much gain before it starts elsewhere; grows, as the bound's choices change less
};

} // namespace cleave::partitioner
