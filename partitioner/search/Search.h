// Best-first branch and bound over the plans of a space. A group of plans is looked at again and again, each time with
// a tighter bound, until it is estimated or no longer needs to be:
//
//   1  the computation of a rank, as if every split were even and free
//   2  the layers as measured with this axis tp and some rows: no other number of rows takes less time per row
//   3  the layers as measured with these rows and this recomputation, in the shortest stages
//   4  the layers as measured on this mesh with this stage of ZeRO: the estimate of each schedule
//
// A bound of a group is never above the estimates of its plans as far as the measured costs keep what 1 to 3 assume.
#pragma once
#include "partitioner/search/Estimate.h"

#include <functional>
#include <vector>

namespace cleave::partitioner {

struct SearchInput {
  SpaceRequest request;
  std::vector<SearchLayer> layers;
  double capacity = 0; ///< bytes of a device that a plan may use
  double least = 0;    ///< seconds of the operations alone
  /// Seconds that a byte takes from a stage to the next one.
  std::function<double(const PlanGroup &)> secondsPerByte;
  /// The costs of the layers under a split; null if the model cannot be split so.
  std::function<const PlanCosts *(const SplitChoice &)> measure;
  /// Whether to end early with the best plan so far.
  std::function<bool()> stops = [] { return false; };
};

struct Candidate {
  PlanGroup group;
  ScheduleChoice schedule;
  Estimate estimate;
  bool byOp = false; ///< with the shardings of single ops that the solver found
};

/// How many plans of the space were estimated, and why the others were not. They add up to `total`.
struct SearchCounts {
  int64_t total = 0, evaluated = 0, prunedByBound = 0, prunedByMemory = 0, refused = 0;
};

struct SearchOutcome {
  std::vector<Candidate> candidates; ///< that fit, by their estimated time
  SearchCounts counts;
  double lower = 0;      ///< seconds: no plan of the space is estimated below
  double leastBytes = 0; ///< if no plan fits: the fewest bytes of a rank that any of the plans needs
  bool stoppedEarly = false;
};

SearchOutcome searchPlans(const SearchInput &input);

} // namespace cleave::partitioner
