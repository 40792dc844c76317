// The fastest plan of a row that fits the devices' memory.
#pragma once
#include "partitioner/search/Candidates.h"

#include <functional>
#include <optional>
#include <vector>

namespace cleave::partitioner {

/// Plans whose estimate is at most this part above the best are of interest, too: other cuts may make them the best.
constexpr double near = 1.2;

/// The next kind, with which a rank keeps less.
Recomputation moreThan(Recomputation kind);

/// Whether ranks that lack memory may recompute more than the group says: where nobody asked for less.
bool recomputesMore(const SearchInput &input, const PlanGroup &group);

struct FastestPlan {
  std::optional<Candidate> plan; ///< the fastest that fits
  bool allFit = true;            ///< whether it fits in stages as even as possible, with the group's recomputation
  Estimate closest;              ///< of what was estimated, the one that needs the fewest bytes above its capacity
};

/// Seconds that a row takes at least if its ranks recompute as the last argument says, of a plan that was estimated
/// with less recomputation.
using BoundOfMore =
    std::function<double(const PositionCosts &, const Estimate &now, const std::vector<Recomputation> &)>;

/// The fastest plan of a row that fits. Ranks that lack memory shorten their stages; or they recompute more, until none
/// lacks any, and then as many of their layers less as fit. No more recomputation is tried where `boundOfMore` is at
/// least `best`, the seconds of another plan.
FastestPlan fastestOf(const SearchInput &input, const PlanGroup &group, const ScheduleChoice &schedule, double best,
                      const BoundOfMore &boundOfMore);

} // namespace cleave::partitioner
