// The required behaviour of every communicator: run by each rank of a world, with results compared with locally
// computed sums. Data are integers, so comparisons are exact; the order of additions is tested with numbers that reveal
// it.
#pragma once
#include "runtime/comm/Communicator.h"

#include <string>
#include <vector>

namespace cleave::test {

/// Runs all expectations on this rank (all ranks of `world` must call it); what fails, as text.
std::vector<std::string> checkCollectives(World &world);
std::vector<std::string> checkMessages(World &world);

} // namespace cleave::test
