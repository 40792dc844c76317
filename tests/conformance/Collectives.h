// What every communicator must do, whoever carries it: run by each rank of a world, results compared with sums made
// here. Data are integers, so comparisons are exact; the order of additions is checked with numbers that show it.
#pragma once
#include "runtime/comm/Communicator.h"

#include <string>
#include <vector>

namespace cleave::test {

/// Runs all expectations on this rank (all ranks of `world` must call it); what fails, as text.
std::vector<std::string> checkCollectives(World &world);
std::vector<std::string> checkMessages(World &world);

} // namespace cleave::test
