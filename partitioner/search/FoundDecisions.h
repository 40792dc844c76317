// The strategy of a plan that a search found.
#pragma once
#include "partitioner/search/Candidates.h"
#include "partitioner/search/SolveLayouts.h"

namespace cleave::partitioner {

/// A plan with this mesh, by role and in the usual order, that decides the rest as `split` does, and the stages and the
/// schedule as the request and its defaults do.
Decisions decisionsOf(const SpaceRequest &asked, const SplitChoice &split, int64_t pipeline, int64_t microbatches);

/// All of a candidate. What the request leaves open has the origin "search". `solved`: of its split; not read unless
/// the candidate has solved shardings.
Decisions decisionsOf(const SearchInput &input, const Candidate &candidate, const Cluster &cluster,
                      const SolvedLayouts *solved);

/// Puts rules of a search before those that are pinned, unless these decide all layers.
void setRecompute(Decisions &decisions, const Strategy &pins, std::vector<RecomputeRule> rules);

/// One rule for all layers, and one for each layer that recomputes otherwise.
std::vector<RecomputeRule> rulesOf(const std::vector<SearchLayer> &layers, const std::vector<Recomputation> &recompute);

} // namespace cleave::partitioner
