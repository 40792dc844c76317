// Runs plans in separate processes.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace cleave::plan_mutations {

/// What two training iterations and an evaluation leave: a digest for each rank's metrics, parameters, buffers and
/// states; or how the process ended: "crash: ...", "hang", "error: ...".
std::string resultsOf(const std::vector<uint8_t> &plan, double seconds);

} // namespace cleave::plan_mutations
