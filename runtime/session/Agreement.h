// The configuration that must be equal in all processes of a job. They compare it before the first step: a rank with
// another option, plan, program or data set would train another model or deadlock.
#pragma once
#include "runtime/comm/Communicator.h"

#include <string>
#include <utility>
#include <vector>

namespace cleave {

/// Names as the user knows them ("--seed"), and values as text.
using ValuesToAgree = std::vector<std::pair<std::string, std::string>>;

/// Collective over all ranks. On rank 0, throws userError that names the first rank that differs from rank 0, the name
/// and both values; the other ranks are notified as of any failure.
void compareAmongRanks(RankEndpoint &world, const ValuesToAgree &mine);

/// This program's version and its libraries'.
ValuesToAgree describeProgram();

} // namespace cleave
