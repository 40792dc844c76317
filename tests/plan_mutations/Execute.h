// Runs plans in separate processes.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace cleave::plan_mutations {

/// Runs two training iterations and an evaluation in a child process. Returns a digest of each rank's metrics,
/// parameters, buffers and states, or how the process failed: "crash: ...", "hang" (no result after `seconds`),
/// "error: ...".
std::string resultsOf(const std::vector<uint8_t> &plan, double seconds);

} // namespace cleave::plan_mutations
