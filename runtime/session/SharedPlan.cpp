// Rank 0 makes the plan and sends it to the others.
#include "runtime/session/SharedPlan.h"
#include "runtime/session/Launcher.h"

namespace cleave {

std::shared_ptr<const PlanFile> planForAllRanks(const std::function<std::shared_ptr<const PlanFile>()> &make,
                                                const std::function<ValuesToAgree()> &given, double seconds) {
  if (!ranksAreProcesses())
    return make();
  std::shared_ptr<const PlanFile> plan;
  withProcessWorld(seconds, [&](RankEndpoint &world) {
    waitForSlowRanks(world, seconds); // rank 0 may compile for a long time
    compareAmongRanks(world, given());
    std::vector<uint8_t> bytes;
    if (world.rank() == 0) {
      plan = make();
      bytes.assign(plan->bytes().begin(), plan->bytes().end());
    }
    world.broadcast(bytes);
    if (!plan)
      plan = PlanFile::fromBytes(std::move(bytes), "the plan that rank 0 sent");
  });
  return plan;
}

} // namespace cleave
