// A plan of the whole model that a search makes.
#pragma once
#include "partitioner/cluster/Cluster.h"
#include "partitioner/simulate/Simulate.h"
#include "partitioner/strategy/Decisions.h"
#include "runtime/plan/PlanFile.h"

#include <memory>
#include <string>
#include <vector>

namespace cleave::partitioner {

struct TriedPlan {
  Decisions strategy;
  double step = 0;                                ///< seconds; 0: it cannot be made, or does not fit
  std::string problem = {};                       ///< then: why
  std::shared_ptr<const PlanFile> file = nullptr; ///< without code; null: it cannot be made
  std::vector<ClassTimes> times = {};             ///< of the simulation, if there is a step
};

/// Simulates a plan that was made; or says in `problem` why it does not fit the memory.
void judge(TriedPlan &plan, const Cluster &cluster);

} // namespace cleave::partitioner
