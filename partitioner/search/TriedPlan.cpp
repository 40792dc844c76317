#include "partitioner/search/TriedPlan.h"

#include "partitioner/simulate/Memory.h"

namespace cleave::partitioner {

void judge(TriedPlan &plan, const Cluster &cluster) {
  if (auto lacks = memoryProblem(plan.file->plan(), cluster)) {
    plan.problem = std::move(*lacks);
    return;
  }
  Simulation simulation = simulate(plan.file->plan(), cluster);
  plan.step = simulation.stepSeconds, plan.times = std::move(simulation.times);
}

} // namespace cleave::partitioner
