// One plan for all ranks.
#pragma once
#include "runtime/plan/PlanFile.h"
#include "runtime/session/Agreement.h"
#include "runtime/session/ProcessWorld.h"

#include <functional>
#include <memory>

namespace cleave {

/// The plan for all ranks: `make` is called only on rank 0, and its bytes are sent to the other processes. The
/// processes meet here and stay connected until they end; `seconds`: how long one waits for the others to start.
/// `given`: the values that must be equal in all processes, compared before the plan is made; called only if there are
/// several processes.
std::shared_ptr<const PlanFile> planForAllRanks(const std::function<std::shared_ptr<const PlanFile>()> &make,
                                                const std::function<ValuesToAgree()> &given,
                                                double seconds = meetingSeconds);

} // namespace cleave
