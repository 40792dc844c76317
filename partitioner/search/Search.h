// Best-first branch and bound over the plans of a space. A group of plans is looked at again and again, each time with
// a tighter bound, until it is estimated or no longer needs to be:
//
//   Work        the computation of a rank, as if every split were even and free
//   TensorAxis  the layers as measured with this axis tp, this recomputation and many rows: no fewer rows take less
//               time per row
//   Rows        the layers as measured with these rows and this recomputation, in the shortest stages
//   Mesh        the layers as measured on this mesh with this stage of ZeRO, in the shortest stages
//   then        the estimate of each schedule
//
// Plans with solved shardings come last, mesh by mesh, so that the others' best tells what is worth solving.
//
// Plans are estimated in stages as even as possible. At the end, the cuts of the best ones are moved as long as that
// saves time: where microbatches are few, stages that are as long take other times in another order.
//
// Before a group is measured on its mesh, it is bounded by what was measured there with a lower stage of ZeRO, fewer
// rows or less recomputation: none of these takes more time.
//
// Where the ranks of a stage lack memory, as many of their layers recompute more as it takes, or their stage is
// shortened: whichever is faster. Where the cluster has several kinds of devices, each position of the pipeline has the
// costs of its slowest one.
//
// A bound of a group is never above the estimates of its plans as far as the measured costs keep what these bounds
// assume.
#pragma once
#include "partitioner/search/Candidates.h"

#include <vector>

namespace cleave::partitioner {

/// How many plans of the space were estimated, and why the others were not. They add up to `total`.
struct SearchCounts {
  int64_t total = 0, evaluated = 0, prunedByBound = 0, prunedByMemory = 0, refused = 0;
  int64_t known() const { return evaluated + prunedByBound + prunedByMemory + refused; }
};

struct SearchOutcome {
  std::vector<Candidate> candidates; ///< that fit, by their estimated time
  SearchCounts counts;
  double lowest = 0; ///< seconds: no plan that has no candidate is estimated below
  /// If no plan fits: the fewest bytes of a rank that any of the plans needs, and what its device has.
  double leastBytes = 0, capacity = 0;
  bool stoppedEarly = false;
};

SearchOutcome searchPlans(const SearchInput &input);

} // namespace cleave::partitioner
