// The plans that differ from a given one in one decision, to show what the decision is worth.
#pragma once
#include "partitioner/search/Search.h"

#include <string>
#include <vector>

namespace cleave::partitioner {

struct Neighbour {
  std::string decision; ///< of the table (strategy/DecisionTable.h)
  Candidate plan;
  std::string value() const; ///< of the decision, as text
};

/// The plans of the space with another value of one decision, not yet estimated. What `space` pins of the decisions
/// does not matter. Of meshes, those in which a factor moves from one axis to another; a pipeline of another length may
/// have another schedule. Shardings are solved if those of `group` are.
std::vector<Neighbour> neighboursOf(Space space, const RankPlaces &places, const PlanGroup &group,
                                    const ScheduleChoice &schedule);

/// Of estimated plans, for each decision the fastest that fits; for the mesh the fastest of up to three meshes. And the
/// fastest that does not fit, if it would be faster than all of them.
std::vector<Neighbour> mostInteresting(std::vector<Neighbour> neighbours);

} // namespace cleave::partitioner
