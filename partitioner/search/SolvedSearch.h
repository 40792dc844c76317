// The part of a search that looks for plans in which the solver chooses how ops are sharded. It goes from mesh to mesh,
// those on which default shardings do well first:
//
//   1. A mesh whose computation alone, split evenly, takes nearly as long as the best plan is left out.
//   2. The problem of the mesh is solved once, for a usual number of rows, and its solution is measured once.
//   3. That measurement, in proportion to the rows, says which groups may fit, and about what they take.
//   4. The most promising groups are measured and estimated, until several in a row are no better.
#pragma once
#include "partitioner/search/Search.h"

#include <vector>

namespace cleave::partitioner {

/// A mesh and the groups of the space that it has with default shardings.
struct SearchedMesh {
  struct Group {
    PlanGroup group;
    double work = 0; ///< seconds of the computation alone, split evenly
  };
  std::vector<Group> groups;
  double promise = 0; ///< seconds, the least bound of these groups
};

/// Adds candidates and counts to `outcome`. `best`: the seconds of the best plan so far.
void searchSolved(const SearchInput &input, const std::vector<SearchedMesh> &meshes, double &best,
                  SearchOutcome &outcome);

} // namespace cleave::partitioner
