// From the estimates of a search to a plan of the whole model: the best candidates are compiled and simulated, and the
// fastest is taken. What is found depends on values alone; compiling is behind PlanTrials, which tests answer.
#pragma once
#include "partitioner/search/Search.h"
#include "partitioner/search/TriedPlan.h"
#include "runtime/plan/plan_generated.h"

#include <span>
#include <string>
#include <vector>

namespace cleave::partitioner {

/// Makes plans of the whole model.
class PlanTrials {
public:
  virtual ~PlanTrials() = default;
  /// Those of some candidates, made at the same time. Throws Stopped.
  virtual std::vector<TriedPlan> tried(std::span<const Candidate> candidates, const Stops &stops) = 0;
};

struct FoundPlan {
  TriedPlan plan;        ///< its step is 0 if there is none
  plan::SearchT record;  ///< for the plan
  SearchOutcome outcome; ///< of the last search
  std::string problem;   ///< of the last plan that could not be made or did not fit
};

/// The fastest plan of the space. If none of the best candidates can be made and fits, they are excluded, and the
/// search begins anew. Once it stops, the first that can be made and fits is taken.
FoundPlan findPlan(SearchInput &input, PlanTrials &trials);

} // namespace cleave::partitioner
